use super::*;

fn kernel(folder: &Path) -> UserKernel {
    let path = folder.join("mine.cu");
    let bytes = std::fs::read(&path).unwrap();
    UserKernel::new("./mine.cu", &path, bytes, None, None).unwrap()
}

#[test]
fn every_byte_that_a_users_kernel_includes_is_in_its_hash() {
    let folder = std::env::temp_dir().join(format!("kmark-hash-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    put("mine.cu", "// kmark: kernel k grid=1 block=32\n#include \"mine.h\"\nKERNEL k(Args a) {}\n");
    put("mine.h", "#include <deeper.h>\n");
    put("deeper.h", "int a;\n");
    let first = kernel(&folder).hash();
    assert_eq!(first, kernel(&folder).hash());
    put("deeper.h", "int b;\n");
    let second = kernel(&folder).hash();
    assert_ne!(first, second);
    put("mine.h", "#include <deeper.h>\n\n");
    assert_ne!(second, kernel(&folder).hash());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_kernel_s_idea_is_its_first_sentence() {
    assert_eq!(
        first_sentence("// Rows in\n// registers. Long ones twice.\n// kmark: kernel k grid=1\n"),
        "Rows in registers"
    );
    assert_eq!(first_sentence("// Rows.\n// kmark: kernel k grid=1\n// more\n"), "Rows");
}

#[test]
fn headers_prelude_and_options_are_in_every_kernels_hash() {
    let of = |text: &str| hash(text.as_bytes(), text, None, &[]);
    let mut seen: Vec<String> = vec![of("")];
    seen.extend(headers().iter().map(|(name, _)| of(&format!("#include \"{name}\""))));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), headers().len() + 1, "each header changes it");
    assert!(!prelude::SOURCE.is_empty() && !jit::OPTIONS.is_empty());
}
