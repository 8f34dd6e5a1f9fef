//! Kernels that leave values to be tuned, on the stand-in.

use crate::cuda::cuda;
use crate::kernels::{GOOD, with_file};
use crate::{text, until};

/// TIMES times the work; not at all with 0, which leaves y as it was.
fn tuned(lines: &str) -> String {
    GOOD.replace("// kmark: kernel", &format!("{lines}\n// kmark: kernel"))
        .replace("    acc_t squares = 0;\n", "    for (int t = 0; t < TIMES; t++) {\n    acc_t squares = 0;\n")
        .replace("rstd.ptr[row] = r;\n", "rstd.ptr[row] = r;\n    }\n")
}

fn mine(records: &[serde_json::Value]) -> Vec<&serde_json::Value> {
    records.iter().filter(|r| r["impl"].as_str().unwrap().contains("mine.cu")).collect()
}

#[test]
fn the_fastest_right_variant_is_chosen_and_told() {
    let source = tuned("// kmark: tune TIMES = 60, 0, 1, 30 when TIMES!=30");
    let (records, result) = until(
        || with_file("mine.cu", &source, &[]),
        |(found, _)| mine(found).iter().all(|r| r["tuned"]["chosen"] == "TIMES=1"),
    );
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    for r in mine(&records) {
        assert_eq!((r["status"].as_str(), r["tuned"]["chosen"].as_str()), (Some("ok"), Some("TIMES=1")), "{r}");
        let tried: Vec<&str> =
            r["tuned"]["tried"].as_array().unwrap().iter().map(|t| t["values"].as_str().unwrap()).collect();
        assert_eq!(tried, ["TIMES=1", "TIMES=60", "TIMES=0"], "{r}");
        assert!(r["tuned"]["tried"][1]["time_ns"].as_f64() > r["tuned"]["tried"][0]["time_ns"].as_f64(), "{r}");
        assert!(r["tuned"]["tried"][2]["message"].as_str().unwrap().contains("elements of y are wrong"), "{r}");
        assert!(r["times"]["tune_ns"].as_f64().unwrap() > 0.0, "{r}");
    }
}

#[test]
fn values_can_be_fixed_and_are_part_of_the_hash() {
    let source = tuned("// kmark: tune TIMES = 2, 1");
    let hashes = ["mine.cu#TIMES=2", "mine.cu#TIMES=1"].map(|name| {
        let (records, result) = with_file(name, &source, &[]);
        assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
        let r = mine(&records)[0].clone();
        assert!(r["impl"].as_str().unwrap().ends_with(&name[7..]) && r["tuned"].is_null(), "{r}");
        r["impl_hash"].as_str().unwrap().to_string()
    });
    assert_ne!(hashes[0], hashes[1]);
    let (records, _) = with_file("mine.cu#TIMES=7", &source, &[]);
    let r = mine(&records)[0];
    assert_eq!(r["status"], "unsupported", "{r}");
    assert!(r["message"].as_str().unwrap().contains("TIMES is one of 2, 1 here, not 7"), "{r}");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rmsnorm.cu:mine");
    for (choice, says) in [("#TIMES", "write it like #BN=128,STAGES=4"), ("#TIMES=1", "unknown tuned value 'TIMES'")] {
        let bad =
            cuda(&["verify", "rmsnorm", "--device", "cuda", "--configs", "5x17", "--impl", &format!("{file}{choice}")]);
        let said = text(&bad.stderr) + &text(&bad.stdout);
        assert!(said.contains(says) && !bad.status.success(), "{said}");
    }
}

#[test]
fn some_values_can_be_fixed_and_the_others_tuned() {
    let source = tuned("// kmark: tune TIMES = 60, 1\n// kmark: tune SPARE = 3, 4");
    let (records, result) = with_file("mine.cu#SPARE=4", &source, &[]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    for r in mine(&records) {
        let tried: Vec<&str> =
            r["tuned"]["tried"].as_array().unwrap().iter().map(|t| t["values"].as_str().unwrap()).collect();
        assert!(tried.len() == 2 && tried.iter().all(|values| values.starts_with("SPARE=4,TIMES=")), "{r}");
    }
}

#[test]
fn a_kernel_none_of_whose_variants_is_right_is_wrong() {
    let (records, result) = with_file("mine.cu", &tuned("// kmark: tune TIMES = 0, 0*1"), &[]);
    assert_eq!(result.status.code(), Some(5), "{}", text(&result.stderr));
    assert!(mine(&records).iter().all(|r| r["status"] == "wrong"), "{records:?}");
}
