// What the engine itself runs on the GPU: inputs, poison, wrong values, guards, hashes; the flush, the blocker and the
// clocks.
#include "kmark.cuh"

// ---- Inputs --------------------------------------------------------------------------------------------------------

struct Filled {
    void* ptr;
    i64 rows, cols, pitch;
    u64 key, seed;
    double a, b, shift;  // constant: value; normal, rows, logits: mean and deviation; classes: how many, what is ignored
    i64 kind, dtype;
};

enum { CONSTANT, NORMAL, ROWS, LOGITS, CLASSES, TILES, TF32_VALUES };
enum { F64, F32, F16, BF16, E4M3, E5M2, I32, I64 };

// In 11 significant bits; as fill.rs has it.
DEVICE double shortened(double x) { return __longlong_as_double((i64)(((u64)__double_as_longlong(x) + (1ull << 41)) >> 42 << 42)); }

DEVICE double filled_value(const Filled& f, i64 row, i64 col, u64 index) {
    switch (f.kind) {
    case CONSTANT: return f.a;
    case NORMAL: return __dadd_rn(f.a, __dmul_rn(f.b, normal(f.key, index)));
    case ROWS: return rows_value(f.key, f.seed, row, col, f.cols, f.a, f.b, f.shift);
    case TILES: return tile_value(f.key, f.seed, row, col, f.cols, f.b);
    case LOGITS: return logit_value(f.key, f.seed, row, col, f.cols, f.b, f.shift);
    case TF32_VALUES: return shortened(__dmul_rn(f.b, normal(f.key, index)));
    default:
        u32 slot = row_slot(index, f.seed);
        if (slot == 15) return f.b;
        if (slot == 8 || slot == 11) return 0.0;
        if (slot == 7 || slot == 12) return f.a - 1.0;
        Words w = philox(f.key, index);
        double unit = __dmul_rn((double)((u64)w.v[0] << 21 | (u64)w.v[1] >> 11), 1.0 / 9007199254740992.0);
        return floor(__dmul_rn(unit, f.a));
    }
}

KERNEL km_fill(const __grid_constant__ Filled f) {
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x; index < f.rows * f.cols; index += step) {
        i64 row = index / f.cols, col = index % f.cols, at = row * f.pitch + col;
        double v = filled_value(f, row, col, index);
        switch (f.dtype) {
        case F64: ((double*)f.ptr)[at] = v; break;
        case F32: ((float*)f.ptr)[at] = (float)v; break;
        case F16: ((f16*)f.ptr)[at] = down<f16>(v); break;
        case BF16: ((bf16*)f.ptr)[at] = down<bf16>(v); break;
        case E4M3: ((e4m3*)f.ptr)[at] = down<e4m3>(v); break;
        case E5M2: ((e5m2*)f.ptr)[at] = down<e5m2>(v); break;
        case I32: ((int*)f.ptr)[at] = (int)v; break;
        default: ((i64*)f.ptr)[at] = (i64)v;
        }
    }
}

// ---- Memory: what must be there and what must not have changed -----------------------------------------------------

// Sets the bytes behind each row.
KERNEL km_set_gaps(u8* ptr, i64 rows, i64 row_bytes, i64 pitch_bytes, u32 value) {
    i64 gap = pitch_bytes - row_bytes, step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * gap; i += step)
        ptr[i / gap * pitch_bytes + row_bytes + i % gap] = (u8)value;
}

DEVICE u64 mixed(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// The byte of a guard that belongs at a place; as `guard.rs` has it.
DEVICE u8 guard_byte(u64 key, const u8* at) {
    u64 address = (u64)at;
    return (u8)(mixed(key + (address >> 3)) >> (8 * (address & 7)));
}

// Makes the bytes behind each row a guard.
KERNEL km_guard_gaps(u8* ptr, i64 rows, i64 row_bytes, i64 pitch_bytes, u64 key) {
    i64 gap = pitch_bytes - row_bytes, step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * gap; i += step) {
        u8* at = ptr + i / gap * pitch_bytes + row_bytes + i % gap;
        *at = guard_byte(key, at);
    }
}

struct Found { u64 lowest, highest, count; };

DEVICE void found(Found* f, u64 at) {
    atomicMin(&f->lowest, at);
    atomicMax(&f->highest, at);
    atomicAdd(&f->count, 1ull);
}

// Bytes of a range that are no guard.
KERNEL km_find_other(const u8* ptr, i64 bytes, u64 key, Found* f) {
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += step)
        if (ptr[i] != guard_byte(key, ptr + i)) found(f, i);
}

// Rows behind which a byte is no guard, or, if there is an `old`, not what stood there.
KERNEL km_find_gaps(const u8* ptr, const u8* old, i64 rows, i64 row_bytes, i64 pitch_bytes, u64 key, Found* f) {
    i64 gap = pitch_bytes - row_bytes, step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * gap; i += step) {
        i64 at = i / gap * pitch_bytes + row_bytes + i % gap;
        if (ptr[at] != (old ? old[at] : guard_byte(key, ptr + at))) found(f, i / gap);
    }
}

// Adds to `sum` a mix of each byte group and its place: changes anywhere show, in whatever order blocks run. The range
// may start at any byte; words are assembled from the aligned address below it.
KERNEL km_hash(const u8* ptr, i64 bytes, u64* sum) {
    i64 step = (i64)gridDim.x * blockDim.x, ahead = (i64)((u64)ptr % 8), words = (ahead + bytes + 7) / 8;
    const u64* aligned = (const u64*)(ptr - ahead);
    u64 first = 0, second = 0;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        u64 word;
        if (i * 8 >= ahead && i * 8 + 8 <= ahead + bytes) {
            word = aligned[i];
        } else {
            word = 0;
            for (int b = 0; b < 8; b++) {
                i64 at = i * 8 + b - ahead;
                if (at >= 0 && at < bytes) word |= (u64)ptr[at] << (8 * b);
            }
        }
        u64 place = mixed((u64)i + 0x9e3779b97f4a7c15ull);
        first += mixed(word ^ place);
        second += mixed(word + 3 * place + 1);
    }
    first = warp_all<Add>(first);
    second = warp_all<Add>(second);
    if (threadIdx.x % 32 == 0) atomicAdd(&sum[0], first), atomicAdd(&sum[1], second);
}

// ---- Known answers: outputs are given wrong values, hashed and compared, in pieces -----------------------------------

// A tensor of `elems` elements, gaps between rows included.
struct Strided { void* ptr; i64 elems, row, pitch, dtype; };
enum { PIECE = 4096 };

// What the bits of an element are: its size, those of its fraction and exponent (0: an integer).
struct Bits { int size, fraction, exponent; };
DEVICE Bits bits_of_type(i64 dtype) {
    switch (dtype) {
    case F64: return {64, 52, 11};
    case F32: return {32, 23, 8};
    case F16: return {16, 10, 5};
    case BF16: return {16, 7, 8};
    case E4M3: return {8, 3, 4};
    case E5M2: return {8, 2, 5};
    case I32: return {32, 3, 0};
    default: return {64, 3, 0};
    }
}

// As `decoy.rs` has it: the highest bit of the fraction changes, the second does not, those below by chance; zeros and
// infinities become ordinary values.
DEVICE u64 wrong_value(Bits t, bool is_e4m3, u64 old, u64 noise) {
    if (t.exponent == 0) return old ^ (1 | (noise & 6));
    u64 top = 1ull << (t.fraction - 1), ones = (1ull << t.exponent) - 1, bias = ones >> 1;
    u64 flip = top | (noise & (top > 1 ? top / 2 - 1 : 0)), magnitude = (1ull << (t.size - 1)) - 1;
    if ((old & magnitude) == 0) return old | (bias - 4) << t.fraction | flip;
    if (!is_e4m3 && ((old >> t.fraction) & ones) == ones) return old ^ flip ^ ((bias + 1) << t.fraction);
    u64 now = old ^ flip;
    return is_e4m3 && (now & magnitude) == magnitude ? now ^ 1 : now;
}

DEVICE u64 noise_at(u64 index, u64 word) { return ((index ^ word) * 0x9e3779b97f4a7c15ull) >> 11; }

// Elements of type W, by words of 8 bytes where rows are full of them, else one by one.
template <class W> DEVICE void disguise_piece(const Strided& t, u64 first, u64 end, u64 word, u32 lane) {
    constexpr u64 N = 8 / sizeof(W);
    Bits bits = bits_of_type(t.dtype);
    bool e4 = t.dtype == E4M3, gaps = t.pitch > t.row;
    if ((u64)t.ptr % 8 == 0 && (end - first) % N == 0 && (!gaps || (t.row % N == 0 && t.pitch % N == 0))) {
        u64* p = (u64*)t.ptr;
        for (u64 i = first / N + lane; i < end / N; i += 32) {
            if (gaps && (i64)(i * N % t.pitch) >= t.row) continue;
            u64 old = p[i], now = 0;
            for (u64 k = 0; k < N; k++) {
                u64 one = wrong_value(bits, e4, (W)(old >> (k * sizeof(W) * 8)), noise_at(i * N + k, word));
                now |= (u64)(W)one << (k * sizeof(W) * 8);
            }
            p[i] = now;
        }
        return;
    }
    W* p = (W*)t.ptr;
    for (u64 i = first + lane; i < end; i += 32)
        if (!gaps || (i64)(i % t.pitch) < t.row) p[i] = (W)wrong_value(bits, e4, p[i], noise_at(i, word));
}

// A warp takes a piece at a time.
KERNEL km_disguise(const __grid_constant__ Strided t, u64 start, u64 stride, u64 count, u64 of, u64 word) {
    u64 warps = (u64)gridDim.x * blockDim.x / 32, warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u32 lane = threadIdx.x % 32, size = bits_of_type(t.dtype).size / 8;
    for (u64 k = warp; k < count; k += warps) {
        u64 first = (start + k * stride) % of * (PIECE / size), end = first + PIECE / size;
        if (end > (u64)t.elems) end = t.elems;
        switch (size) {
        case 1: disguise_piece<u8>(t, first, end, word, lane); break;
        case 2: disguise_piece<u16>(t, first, end, word, lane); break;
        case 4: disguise_piece<u32>(t, first, end, word, lane); break;
        default: disguise_piece<u64>(t, first, end, word, lane);
        }
    }
}

template <class W> DEVICE u64 hash_piece(const W* p, u64 first, u64 end, u32 lane) {
    u64 sum = 0;
    for (u64 i = first + lane; i < end; i += 32) sum += mixed((u64)p[i] ^ ((i - first + 1) * 0x9e3779b97f4a7c15ull));
    return sum;
}

enum { KEEP, COMPARE, RENEW, LOOSEN };

// Words of 8 bytes where the tensor is aligned and full of them, else elements; a problem's memory stays where it is, so
// that it is always the same of the two.
KERNEL km_hash_pieces(const __grid_constant__ Strided t, u64 start, u64 stride, u64 count, u64 of, u64* kept, u32 what,
                      u64* differing) {
    u64 warps = (u64)gridDim.x * blockDim.x / 32, warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u32 lane = threadIdx.x % 32, size = bits_of_type(t.dtype).size / 8;
    u64 bytes = (u64)t.elems * size;
    if ((u64)t.ptr % 8 == 0 && bytes % 8 == 0) size = 8;
    for (u64 k = warp; k < count; k += warps) {
        u64 piece = (start + k * stride) % of, first = piece * (PIECE / size), end = first + PIECE / size;
        if (end > bytes / size) end = bytes / size;
        u64 sum;
        switch (size) {
        case 1: sum = hash_piece((const u8*)t.ptr, first, end, lane); break;
        case 2: sum = hash_piece((const u16*)t.ptr, first, end, lane); break;
        case 4: sum = hash_piece((const u32*)t.ptr, first, end, lane); break;
        default: sum = hash_piece((const u64*)t.ptr, first, end, lane);
        }
        sum = warp_all<Add>(sum);
        if (sum == 0) sum = 1; // a kept 0 says that the piece may hold anything
        if (lane != 0) continue;
        bool differs = kept[piece] != 0 && kept[piece] != sum;
        if (what == KEEP || (what == RENEW && kept[piece] != 0)) kept[piece] = sum;
        if (what == LOOSEN && differs) kept[piece] = 0;
        if (what == COMPARE && differs) atomicAdd(differing, 1ull);
    }
}

DEVICE double element(const Strided& t, i64 at) {
    switch (t.dtype) {
    case F64: return wide(((const double*)t.ptr)[at]);
    case F32: return wide(((const float*)t.ptr)[at]);
    case F16: return wide(((const f16*)t.ptr)[at]);
    case BF16: return wide(((const bf16*)t.ptr)[at]);
    case E4M3: return wide(((const e4m3*)t.ptr)[at]);
    case E5M2: return wide(((const e5m2*)t.ptr)[at]);
    case I32: return wide(((const int*)t.ptr)[at]);
    default: return wide(((const i64*)t.ptr)[at]);
    }
}

// Copies a number to where the host can see it.
KERNEL km_publish(const u64* from, u64* to) {
    if (threadIdx.x == 0) *to = *from;
}

// Elements that `word` chooses, as doubles.
KERNEL km_glance(const __grid_constant__ Strided t, u64 word, i64 count, double* out) {
    i64 step = (i64)gridDim.x * blockDim.x;
    u64 elems = (u64)(t.elems / t.pitch * t.row);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        u64 at = mixed(word + (u64)i) % (elems ? elems : 1);
        out[i] = elems ? element(t, (i64)(at / t.row * t.pitch + at % t.row)) : 0.0;
    }
}

// ---- Samples -------------------------------------------------------------------------------------------------------

struct Quad { u32 x, y, z, w; };

// Reads a buffer larger than the cache: what is left there is clean and nobody's.
KERNEL km_flush(const Quad* p, i64 count, u32 never, u32* out) {
    i64 step = (i64)gridDim.x * blockDim.x;
    u32 sum = 0;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        Quad q = p[i];
        sum += q.x ^ q.y ^ q.z ^ q.w;
    }
    if (sum == never) *out = sum; // so that the reads are not optimised away
}

// Holds the stream until the host writes `ticket`, or for `limit` ns. status: 1 released, 2 gave up.
KERNEL km_hold(const u32* flag, u32* status, u32 ticket, u64 limit) {
    u64 start = global_ns();
    while ((int)(load_system(flag) - ticket) < 0) {
        if (global_ns() - start > limit) {
            store_system(status, 2);
            return;
        }
    }
    store_system(status, 1);
}

// One block per multiprocessor: its cycle counter and the global timer, read together.
struct Stamp { u64 cycles, ns; };
KERNEL km_stamp(Stamp* stamps, u32 count) {
    u32 sm = sm_id();
    if (threadIdx.x == 0 && sm < count) {
        Stamp s;
        s.cycles = (u64)clock64();
        s.ns = global_ns();
        stamps[sm] = s;
    }
}

KERNEL km_empty() {}

// A kernel of known duration, and what the global timer says of it: start and end.
KERNEL km_spin(u64 ns, u64* times) {
    u64 start = global_ns(), now = start;
    while (now - start < ns) now = global_ns();
    times[0] = start;
    times[1] = now;
}

// The smallest step of the global timer.
KERNEL km_timer_step(u64* out) {
    u64 least = ~0ull, before = global_ns();
    for (int steps = 0; steps < 64;) {
        u64 now = global_ns();
        if (now != before) {
            if (now - before < least) least = now - before;
            before = now;
            steps++;
        }
    }
    *out = least;
}
