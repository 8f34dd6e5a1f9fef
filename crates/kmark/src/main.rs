//! The command `kmark`; all of it is in the library.

fn main() -> std::process::ExitCode {
    kmark::main()
}
