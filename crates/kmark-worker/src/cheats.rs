//! Ways to be fast without doing the work, on the CPU: each starts from a right launch and saves some of it. What timed
//! launches are checked for is checked with these; tests only.

use kmark_device::Launch;
use kmark_device::buffer::{Buffer, Buffers};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

#[derive(Clone, Copy)]
pub enum Cheat {
    /// None, in truth: what atomics do.
    Wobbles,
    WobblesAtFirst,
    EveryOther,
    AtFirst,
    OnPoison,
    LooksRight,
    Half,
    Hole,
    Deferred,
    Late,
    Remembers,
    KeepsLast,
    /// Only the first binding of the process is right, or only the later ones.
    FirstBinding,
    LaterBindings,
}

/// Launches after which those that wait for it begin to cheat: verification is over by then.
const PATIENCE: u32 = 6;
/// Those that remember do the work so many times, so that remembering pays.
const EFFORT: usize = 64;

/// The outputs of a case.
struct Outputs(Vec<Buffer>);

type Contents = Vec<Vec<u8>>;

impl Outputs {
    fn of(buffers: &Buffers) -> Outputs {
        Outputs(buffers.0.iter().filter(|b| b.spec().role.is_output()).cloned().collect())
    }
    fn read(&self) -> Contents {
        self.0.iter().map(|b| b.read::<u8>().to_vec()).collect()
    }
    fn write(&self, contents: &Contents) {
        self.0.iter().zip(contents).for_each(|(b, c)| b.write::<u8>().copy_from_slice(c));
    }
    /// Changes the lowest bit of some elements, zeros left out.
    fn wobble(&self, number: u32) {
        let size = self.0[0].spec().dtype.size();
        let mut bytes = self.0[0].write::<u8>();
        let some = bytes.chunks_mut(size).skip(number as usize % 5).step_by(7);
        some.filter(|element| element.iter().any(|b| *b & 0x7f != 0)).for_each(|element| element[0] ^= 1);
    }
    fn first(&self) -> f64 {
        let mut value = [0.0];
        self.0[0].spec().read(&self.0[0].read::<u8>(), 0, &mut value);
        value[0]
    }
}

/// `again`: it was bound in this process before.
pub fn launch(cheat: Cheat, again: bool, mut right: Box<dyn Launch>, buffers: &Buffers) -> Box<dyn Launch> {
    let (outputs, inputs) = (Outputs::of(buffers), buffers.clone());
    let mut work = move |times: usize| (0..times).for_each(|_| right.launch().expect("CPU impls do not fail"));
    let mut launches = 0u32;
    let mut count = move || {
        launches += 1;
        launches
    };
    match cheat {
        Cheat::Wobbles => Box::new(move || {
            work(1);
            outputs.wobble(count());
        }),
        Cheat::WobblesAtFirst => Box::new(move || {
            let number = count();
            if number < 2 * PATIENCE {
                work(1);
                outputs.wobble(number);
            }
        }),
        Cheat::EveryOther => Box::new(move || {
            let number = count();
            if number < PATIENCE || number.is_multiple_of(2) {
                work(1);
            }
        }),
        Cheat::AtFirst => Box::new(move || {
            if count() < PATIENCE {
                work(1);
            }
        }),
        Cheat::OnPoison => Box::new(move || {
            if outputs.first().is_nan() {
                work(1);
            }
        }),
        Cheat::LooksRight => {
            let mut seen = f64::NAN;
            Box::new(move || {
                let now = outputs.first();
                if !(now.signum() == seen.signum() && (0.4..2.5).contains(&(now / seen))) {
                    work(1);
                    seen = outputs.first();
                }
            })
        }
        Cheat::Half => Box::new(move || partly(&outputs, count() > PATIENCE, &mut work, |len| len / 2..len)),
        Cheat::Hole => Box::new(move || {
            partly(&outputs, count() > PATIENCE, &mut work, |len| len / 3..(len / 3 + 64).min(len));
        }),
        Cheat::Deferred => {
            let mut kept: Option<Contents> = None;
            Box::new(move || {
                work(1);
                let now = outputs.read();
                outputs.write(kept.as_ref().unwrap_or(&now));
                kept = Some(now);
            })
        }
        Cheat::Late => Box::new(move || {
            if count() < PATIENCE {
                return work(1);
            }
            let before = outputs.read();
            work(1);
            let result = outputs.read();
            outputs.write(&before);
            let outputs = Outputs(outputs.0.clone());
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(100));
                outputs.write(&result);
            });
        }),
        Cheat::Remembers => {
            let mut kept: HashMap<u64, Contents> = HashMap::new();
            Box::new(move || {
                let known = kept.entry(hash(&inputs)).or_insert_with(|| {
                    work(EFFORT);
                    outputs.read()
                });
                outputs.write(known);
            })
        }
        Cheat::FirstBinding | Cheat::LaterBindings => {
            let works = again == matches!(cheat, Cheat::LaterBindings);
            Box::new(move || work(usize::from(works)))
        }
        Cheat::KeepsLast => {
            let mut kept: Option<(u64, Contents)> = None;
            Box::new(move || {
                let key = hash(&inputs);
                match &kept {
                    Some((last, contents)) if *last == key => outputs.write(contents),
                    _ => {
                        work(EFFORT);
                        kept = Some((key, outputs.read()));
                    }
                }
            })
        }
    }
}

/// Works, and if it cheats puts back what stood in a range of the first output.
fn partly(
    outputs: &Outputs,
    cheats: bool,
    work: &mut impl FnMut(usize),
    range: impl Fn(usize) -> std::ops::Range<usize>,
) {
    let before = outputs.0[0].read::<u8>().to_vec();
    work(1);
    if cheats {
        let range = range(before.len());
        outputs.0[0].write::<u8>()[range.clone()].copy_from_slice(&before[range]);
    }
}

/// Of a few elements of every input: enough to notice other values, cheap enough to pay.
fn hash(buffers: &Buffers) -> u64 {
    let mut hasher = DefaultHasher::new();
    for buffer in buffers.0.iter().filter(|b| b.spec().role.is_input()) {
        let bytes = buffer.read::<u8>();
        bytes[..bytes.len().min(256)].hash(&mut hasher);
    }
    hasher.finish()
}
