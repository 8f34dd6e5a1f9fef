//! What the lines `// kmark: …` of a kernel file come to in a case: values, tensor maps, launches, and what is said of mistakes.

use indexmap::IndexMap;
use kmark_core::case::DEFAULT_SEED;
use kmark_core::dtype::DType;
use kmark_device::Impl;
use kmark_device::cuda::declare::declarations;
use kmark_device::cuda::directives::Directives;
use kmark_device::cuda::kernel_line::NOT_COMPILED;
use kmark_device::cuda::machine::Machine;
use kmark_ops::cuda::UserKernel;
use std::path::Path;

/// A product's case on an H200, as a kernel file with these lines sees it.
fn seen(lines: &str, sizes: [u64; 3], attrs: &[(&str, &str)]) -> Result<(Vec<(String, i64)>, String), String> {
    let op = kmark_ops::find("gemm").unwrap().op;
    let axes = ["m", "n", "k"].iter().map(|a| a.to_string()).zip(sizes).collect();
    let attrs: IndexMap<String, String> = attrs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let case = op.case(DType::Bf16, &axes, &attrs, DEFAULT_SEED).unwrap();
    let (directives, tensors) = (Directives::parse(lines)?, op.tensors(&case));
    let machine = Machine::usual("sm_90a");
    let names = directives.names(op, &case, &tensors, &machine)?;
    directives.claims(&names)?;
    for kernel in &directives.kernels {
        kernel.shape(&names, NOT_COMPILED)?;
    }
    Ok((names.lets.clone(), declarations(&directives, &names)))
}

#[test]
fn values_are_known_to_later_lines_and_to_the_code() {
    let lines = "// kmark: let TILE = n>64?128:64\n// kmark: let COST(W) = ceil(n,W)*W\n// kmark: let BEST = least(W,16,TILE,16,COST(W))\n\
                 // kmark: let BIG = l2*1000\n// kmark: let ACROSS = layout.nn\n// kmark: map b = b box=64,BEST/2 swizzle=128\n\
                 // kmark: kernel k grid=ceil(n,BEST)*2 block=128 cluster=2 with=overlap,cooperative";
    let (values, text) = seen(lines, [256, 144, 64], &[("layout", "nt")]).unwrap();
    let of = |name: &str| values.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    assert_eq!([of("TILE"), of("BEST"), of("COST"), of("ACROSS")], [Some(128), Some(48), None, Some(0)]);
    assert!(text.contains("constexpr int BEST = 48;") && text.contains("constexpr i64 BIG = 62914560000;"), "{text}");
    assert!(text.contains("struct Maps { TensorMap b; };"), "{text}");
}

#[test]
fn what_a_line_asks_for_in_vain_is_named() {
    for (line, part) in [
        ("let LAYOUT = 1", "let LAYOUT: the name has a meaning already"),
        ("let m = 1", "let m: the name has a meaning already"),
        ("let X = q", "let X: `q`: there is no q here"),
        ("let F(X) = F(X)\n// kmark: let Y = F(1)", "F calls itself"),
        ("map a = a box=64,512 swizzle=128", "map a: a box of [64, 512] is too large"),
        ("map a = a box=128,64 swizzle=128", "map a: a box of [128, 64] is too large"),
        ("map a = a box=64,64 swizzle=96", "map a: swizzle is 0, 32, 64 or 128 bytes"),
        ("map a = q box=8,64", "map a: unknown tensor 'q'"),
        ("map a = a box=4,64", "map a: a row of the box has 8 bytes, not at multiples of 16"),
        ("kernel k grid=3 block=32 cluster=2", "a grid of [3, 1, 1] blocks does not divide into clusters of [2, 1, 1]"),
        ("kernel k grid=32 block=32 cluster=32", "or these have more than 16"),
    ] {
        let error = seen(&format!("// kmark: {line}"), [256, 128, 64], &[]).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
    let map = "// kmark: map a = a box=64,64 swizzle=128";
    let odd = seen(map, [256, 128, 65], &[]).unwrap_err();
    assert!(odd.contains("map a: rows of a are apart 130 bytes, not at multiples of 16"), "{odd}");
    let unaligned = seen(map, [256, 128, 64], &[("memory", "unaligned")]).unwrap_err();
    assert!(unaligned.contains("map a: a begins after 2 bytes"), "{unaligned}");
    // Rows of d lie at multiples of 16 bytes here, and a copy would write the gap behind them.
    let strided = [("memory", "strided")];
    let gaps = seen("// kmark: map d = d box=8,64", [256, 65, 64], &strided).unwrap_err();
    assert!(gaps.contains("map d: d is written, and its rows have 130 bytes, not at multiples of 16"), "{gaps}");
    seen("// kmark: map a = a box=8,64", [256, 128, 65], &strided).expect("reading ends with the row");
}

/// What there is to try in a product of 256 x n x 64, in the order of the file.
fn variants(lines: &str, n: u64) -> Vec<String> {
    let text = format!("{lines}\n// kmark: kernel k grid=1 block=32\n");
    let kernel = UserKernel::new("./k.cu", Path::new("k.cu"), text.into_bytes(), None, None).unwrap();
    let op = kmark_ops::find("gemm").unwrap().op;
    let axes = [("m", 256), ("n", n), ("k", 64)].map(|(a, v)| (a.to_string(), v)).into_iter().collect();
    let case = op.case(DType::Bf16, &axes, &IndexMap::new(), DEFAULT_SEED).unwrap();
    assert_eq!(kernel.supports(op, &case).is_ok(), !kernel.variants(op, &case, "sm_90a").is_empty());
    kernel.variants(op, &case, "sm_90a")
}

#[test]
fn variants_are_what_a_file_offers_in_a_case() {
    let lines =
        "// kmark: tune BN = 64, 128, n when BN<=n\n// kmark: let HALF = BN/2\n// kmark: tune STAGES = 4, HALF/16";
    assert_eq!(variants(lines, 128), ["BN=64,STAGES=4", "BN=64,STAGES=2", "BN=128,STAGES=4"]);
    assert_eq!(variants(lines, 40), ["BN=40,STAGES=4", "BN=40,STAGES=1"]);
    assert!(variants("// kmark: tune BN = 64, 128 when BN<n", 64).is_empty());
    let many = (0..3).map(|i| format!("// kmark: tune T{i} = 1, 2, 3, 4, 5")).collect::<Vec<_>>().join("\n");
    assert!(variants(&many, 64).is_empty(), "125 variants");
    assert_eq!(variants(&format!("{many} when T0+T1==T2"), 64).len(), 10, "of 125");
}

#[test]
fn tiles_of_products_are_as_wide_as_waves_of_them_want() {
    let text = include_str!("../src/gemm/cuda/02_wgmma.cu");
    let width = |sizes| {
        let (values, _) = seen(text, sizes, &[("layout", "nt")]).unwrap();
        let of = |name: &str| values.iter().find(|(known, _)| known == name).map(|(_, value)| *value).unwrap();
        (of("BN"), of("SPLIT"))
    };
    assert_eq!(width([4096, 4096, 4096]), (256, 1));
    assert_eq!(width([4096, 576, 7168]), (144, 1), "64 pairs of tiles for 66 pairs of multiprocessors");
    assert!(width([128, 7168, 16384]).1 > 1, "few tiles are cut along k");
}

/// Every row has its threads, and none of them more of it than others do: a rule that gives 43 loads to each of 96 threads
/// once made softmax of 4097 columns three times slower than of 4096.
#[test]
fn rows_of_all_lengths_are_shared_by_enough_threads() {
    let lengths =
        [1, 3, 8, 40, 64, 127, 257, 512, 1000, 1023, 1024, 1025, 2048, 2056, 4096, 4097, 5120, 8191, 8200, 12288];
    let longer = [16384, 16385, 32768, 32776, 65536, 65537, 131072, 131080, 262144];
    for (op, text) in [
        ("rmsnorm", include_str!("../src/rmsnorm/cuda/01_rows.cu")),
        ("layernorm", include_str!("../src/layernorm/cuda/01_rows.cu")),
        ("add-rmsnorm", include_str!("../src/add_rmsnorm/cuda/01_rows.cu")),
        ("softmax", include_str!("../src/softmax/cuda/01_rows.cu")),
        ("softmax-bwd", include_str!("../src/softmax_bwd/cuda/01_rows.cu")),
        ("softmax-fwd-bwd", include_str!("../src/softmax_fwd_bwd/cuda/01_rows.cu")),
    ] {
        let (op, directives) = (kmark_ops::find(op).unwrap().op, Directives::parse(text).unwrap());
        for (n, m) in lengths.iter().chain(&longer).flat_map(|n| [1, 33, 512, 8192, 262144].map(|m| (*n, m))) {
            for (dtype, memory) in [(DType::Bf16, "dense"), (DType::Bf16, "unaligned"), (DType::F32, "dense")] {
                let axes = [("m", m), ("n", n)].map(|(a, v)| (a.to_string(), v)).into_iter().collect();
                let attrs = IndexMap::from([("memory".to_string(), memory.to_string())]);
                let case = op.case(dtype, &axes, &attrs, DEFAULT_SEED).unwrap();
                let (tensors, machine) = (op.tensors(&case), Machine::usual("sm_90a"));
                let names = directives.names(op, &case, &tensors, &machine).unwrap();
                let of = |name: &str| names.lets.iter().find(|(known, _)| known == name).unwrap().1 as u64;
                let shape = directives.kernels[0].shape(&names, NOT_COMPILED).unwrap().unwrap();
                let [grid, threads, blocks] = [shape.grid[0], shape.block[0], shape.cluster[0]].map(u64::from);
                let (team, rows) = match of("BATCH") {
                    0 => (threads * blocks, grid / blocks),
                    batch => (of("LANES"), grid * (threads / of("LANES")) * batch),
                };
                assert!(rows >= m && rows - m < 256, "{}: {rows} rows", case.id);
                assert!(threads % 32 == 0 && threads <= 1024 && (team % 32 == 0 || 32 % team == 0), "{}", case.id);
                let loads = (n * dtype.size() as u64).div_ceil(of("ACCESS")).div_ceil(team);
                let most = if n <= 16384 { 32 } else { 64 };
                assert!(loads <= most, "{}: {loads} loads of {} bytes by each of {team}", case.id, of("ACCESS"));
            }
        }
    }
}

/// The backwards of norms sum over rows: every part of a sum that a launch writes has room in the workspace, however many clusters the
/// GPU holds at once, and no cluster waits for a row that there is not. Two blocks to a multiprocessor, where there was room for one,
/// once wrote behind it.
#[test]
fn parts_of_sums_have_room_however_many_blocks_run() {
    let files = [
        ("rmsnorm-bwd", include_str!("../src/rmsnorm_bwd/cuda/01_rows.cu")),
        ("rmsnorm-bwd", include_str!("../src/rmsnorm_bwd/cuda/02_few.cu")),
        ("rmsnorm-bwd", include_str!("../src/rmsnorm_bwd/cuda/03_cluster.cu")),
        ("layernorm-bwd", include_str!("../src/layernorm_bwd/cuda/01_rows.cu")),
        ("layernorm-bwd", include_str!("../src/layernorm_bwd/cuda/02_few.cu")),
        ("layernorm-bwd", include_str!("../src/layernorm_bwd/cuda/03_cluster.cu")),
    ];
    let lengths = [
        1, 129, 256, 1000, 3072, 4096, 4097, 8191, 8192, 12296, 16388, 18689, 32767, 32768, 32769, 32776, 36864, 65535,
    ];
    let sizes = lengths.iter().chain(&[65544, 131072, 262144]).flat_map(|n| [1, 5, 9, 33, 1000].map(|m| (*n, m)));
    let layouts = [(DType::Bf16, "dense"), (DType::Bf16, "unaligned"), (DType::F32, "dense"), (DType::F64, "strided")];
    for ((n, m), (dtype, memory)) in sizes.flat_map(|size| layouts.map(|layout| (size, layout))) {
        for ((op, text), bias) in files.iter().flat_map(|file| ["no", "yes"].map(|bias| (file, bias))) {
            let (op, directives) = (kmark_ops::find(op).unwrap().op, Directives::parse(text).unwrap());
            let (values, sums) = if op.name == "rmsnorm-bwd" { (1, 1) } else { (2, 1 + u64::from(bias == "yes")) };
            let axes = [("m", m), ("n", n)].map(|(a, v)| (a.to_string(), v)).into_iter().collect();
            let mut attrs = IndexMap::from([("memory".to_string(), memory.to_string())]);
            if values == 2 {
                attrs.insert("bias".to_string(), bias.to_string());
            }
            let case = op.case(dtype, &axes, &attrs, DEFAULT_SEED).unwrap();
            let (tensors, number) = (op.tensors(&case), dtype.size().max(4) as u64);
            for (arch, sms) in [("sm_90a", 132), ("sm_90a", 14), ("sm_86", 2)] {
                let machine = Machine { sms, ..Machine::usual(arch) };
                let names = directives.names(op, &case, &tensors, &machine).unwrap();
                if !directives.runs_on(arch) || directives.claims(&names).is_err() {
                    continue;
                }
                let room = directives.workspace_bytes(&names).unwrap() as u64;
                let clusters: &[u32] = if text.contains("clusters") { &[1, 3, 7, 8, 14, 66, 264] } else { &[1] };
                for (kernel, fit) in directives.kernels.iter().flat_map(|k| clusters.iter().map(move |fit| (k, *fit))) {
                    let Some(shape) = kernel.shape(&names, &|_, _, _| Ok(fit)).unwrap() else { continue };
                    let [x, y, cluster] = [shape.grid[0], shape.grid[1], shape.cluster[0]].map(u64::from);
                    let part = sums * n.next_multiple_of(32) * number;
                    let bytes = match kernel.name.as_str() {
                        "dx_dw" => 256 + x / cluster * part,
                        "dw" => 256 + y * part,
                        "sums" => x * values * number, // of rows
                        _ => continue,
                    };
                    assert!(bytes <= room, "{} on {sms}, {fit} at once: {bytes} bytes of {room}", case.id);
                    assert!(cluster == 1 || x / cluster <= m, "{} on {sms}, {fit} at once: one has no row", case.id);
                }
            }
        }
    }
}

/// Tiles of attention's backward differ in length where there is a mask. Given out in order to the multiprocessor that is free
/// first, they must not leave the others waiting for one long tile at the end.
#[test]
fn masked_tiles_end_together() {
    let op = kmark_ops::find("attention-bwd").unwrap().op;
    let directives = Directives::parse(include_str!("../src/attention_bwd/cuda/02_wgmma.cu")).unwrap();
    let machine = Machine::usual("sm_90a");
    for (b, hq, hkv, s, d) in [
        (4, 16, 16, 2048, 128),
        (4, 16, 16, 4096, 128),
        (2, 16, 16, 8192, 128),
        (4, 32, 8, 2048, 128),
        (4, 32, 8, 4096, 128),
        (3, 24, 8, 3333, 128),
        (1, 32, 8, 8192, 128),
        (3, 17, 17, 3000, 128),
        (1, 16, 16, 16384, 128),
        (2, 8, 8, 4096, 64),
        (2, 32, 32, 8192, 64),
        (16, 16, 16, 512, 64),
    ] {
        let axes = [("b", b), ("hq", hq), ("hkv", hkv), ("sq", s), ("sk", s), ("d", d)];
        let axes = axes.map(|(a, v)| (a.to_string(), v)).into_iter().collect();
        let attrs = IndexMap::from([("causal".to_string(), "yes".to_string())]);
        let case = op.case(DType::Bf16, &axes, &attrs, DEFAULT_SEED).unwrap();
        let tensors = op.tensors(&case);
        let names = directives.names(op, &case, &tensors, &machine).unwrap();
        let value = |name: &str| names.value(name).unwrap() as u64;
        let (tiles, queries, together, early) = (value("TILES"), value("QUERIES"), value("TOGETHER"), value("EARLY"));
        let heads = b * hkv;
        assert!(early <= heads && early % together == 0, "{}: {early} of {heads} heads by {together}", case.id);
        // Steps of queries that see a tile's keys, and about three for its beginning and end.
        let steps = |tile: u64| (value("STEPS") - tile * 128 / queries) * (hq / hkv) + 3;
        let turns = (0..early / together).map(|_| together).chain([heads - early]);
        let lengths: Vec<u64> =
            turns.flat_map(|side| (0..tiles).flat_map(move |tile| (0..side).map(move |_| tile))).map(steps).collect();
        assert_eq!(lengths.len() as u64, tiles * heads);
        let mut free = vec![0; machine.sms as usize];
        for length in &lengths {
            *free.iter_mut().min().unwrap() += length;
        }
        let (last, mean) =
            (*free.iter().max().unwrap() as f64, lengths.iter().sum::<u64>() as f64 / machine.sms as f64);
        assert!(
            last < 1.08 * mean,
            "{}: {:.1} % longer than all multiprocessors need",
            case.id,
            100.0 * (last / mean - 1.0)
        );
    }
}
