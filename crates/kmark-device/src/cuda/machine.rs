//! What a kernel file may know of the GPU that it is compiled for.

/// The GPU that code is compiled for, and what expressions may know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// As compilers name it.
    pub arch: String,
    pub sms: u32,
    /// Bytes of shared memory that a block can have.
    pub shared: u32,
    pub l2: u64,
}

impl Machine {
    /// Blocks that every GPU of the architecture can put into one cluster.
    pub fn max_cluster(&self) -> i64 {
        let number: String = self.arch.chars().filter(char::is_ascii_digit).collect();
        if number.parse().is_ok_and(|n: u32| n >= 90) { 8 } else { 1 }
    }

    /// The usual GPU of an architecture, where none is at hand: cases are claimed and code is compiled for it.
    pub fn usual(arch: &str) -> Machine {
        let (sms, shared, l2) = match arch {
            "sm_86" => (84, 99, 6),
            "sm_89" => (142, 99, 96),
            "sm_90a" => (132, 227, 60),
            "sm_100a" => (148, 227, 126),
            "sm_120a" => (170, 99, 96),
            _ => (108, 163, 40),
        };
        Machine { arch: arch.into(), sms, shared: shared << 10, l2: l2 << 20 }
    }
}
