// What the engine itself runs on the card: inputs, poison, guards, hashes; the flush, the blocker and the clocks.
#include "kmark.cuh"

// ---- Inputs --------------------------------------------------------------------------------------------------------

struct Filled {
    void* ptr;
    i64 rows, cols, pitch;
    u64 key, seed;
    double a, b, shift;  // constant: value; normal, rows, logits: mean and deviation; classes: how many, what is ignored
    i64 kind, dtype;
};

enum { CONSTANT, NORMAL, ROWS, LOGITS, CLASSES, TILES };
enum { F64, F32, F16, BF16, E4M3, E5M2, I32, I64 };

DEVICE double filled_value(const Filled& f, i64 row, i64 col, u64 index) {
    switch (f.kind) {
    case CONSTANT: return f.a;
    case NORMAL: return __dadd_rn(f.a, __dmul_rn(f.b, normal(f.key, index)));
    case ROWS: return rows_value(f.key, f.seed, row, col, f.cols, f.a, f.b, f.shift);
    case TILES: return tile_value(f.key, f.seed, row, col, f.cols, f.b);
    case LOGITS: return logit_value(f.key, f.seed, row, col, f.cols, f.b, f.shift);
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

struct Found { u64 lowest, highest, count; };

DEVICE void found(Found* f, u64 at) {
    atomicMin(&f->lowest, at);
    atomicMax(&f->highest, at);
    atomicAdd(&f->count, 1ull);
}

// Bytes of a range that are not `value`.
KERNEL km_find_other(const u8* ptr, i64 bytes, u32 value, Found* f) {
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += step)
        if (ptr[i] != value) found(f, i);
}

// Rows behind which a byte is not `value`, or, if there is an `old`, not what stood there.
KERNEL km_find_gaps(const u8* ptr, const u8* old, i64 rows, i64 row_bytes, i64 pitch_bytes, u32 value, Found* f) {
    i64 gap = pitch_bytes - row_bytes, step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * gap; i += step) {
        i64 at = i / gap * pitch_bytes + row_bytes + i % gap;
        if (ptr[at] != (old ? old[at] : (u8)value)) found(f, i / gap);
    }
}

DEVICE u64 mixed(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
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

// ---- Samples -------------------------------------------------------------------------------------------------------

struct Quad { u32 x, y, z, w; };

// Writes the flush buffer, then (km_flush_read) reads it back: what is left in the cache is clean and nobody's.
KERNEL km_flush_write(Quad* p, i64 count, u32 value) {
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) p[i] = Quad{value, value, value, value};
}
KERNEL km_flush_read(const Quad* p, i64 count, u32 never, u32* out) {
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
