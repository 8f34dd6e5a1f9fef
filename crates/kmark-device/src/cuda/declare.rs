//! What the code of a kernel file sees of its lines `let` and `map`: constants, and the struct `Maps`, which kernels take
//! behind their `Args`. Stands behind the prelude, and in the hash of files that have such lines.

use super::directives::{Directives, Names};

pub const SOURCE: &str = include_str!("declare.rs");

pub fn declarations(directives: &Directives, names: &Names) -> String {
    let mut text = String::new();
    for (name, value) in &names.lets {
        let kind = if i32::try_from(*value).is_ok() { "int" } else { "i64" };
        text.push_str(&format!("[[maybe_unused]] constexpr {kind} {name} = {value};\n"));
    }
    if !directives.maps.is_empty() {
        let all: Vec<&str> = directives.maps.iter().map(|m| m.name.as_str()).collect();
        text.push_str("struct alignas(64) TensorMap { u64 words[16]; };\n");
        text.push_str(&format!("struct Maps {{ TensorMap {}; }};\n", all.join(", ")));
    }
    text
}
