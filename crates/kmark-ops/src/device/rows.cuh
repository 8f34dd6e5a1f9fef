// Rows of compile-time length over teams of threads: which thread holds which elements, loads and stores of 16 bytes
// where rows are aligned. A row stays in registers where it fits.
#pragma once
#include "fast_exp.cuh"
#include "loads.cuh"
#include "teams.cuh"

// Where rows start: at multiples of an access; anywhere; or all of them one element behind a multiple, and they are whole accesses
// long.
enum class Start { aligned, anywhere, behind };
DEVICE constexpr Start start_of(bool anywhere, bool behind) {
    return behind ? Start::behind : anywhere ? Start::anywhere : Start::aligned;
}

// How a thread of team T walks over a row: `count` accesses of `step` neighbouring elements. If `resident`, what it
// loads stays in registers; else every pass loads again. Rows that start anywhere are cut where memory is: the first access begins
// up to `lead` elements before the row, and columns count from the row's start. Those that start behind are turned (spans.cuh).
template <class T, i64 row_length, int row_step, bool in_registers, Start start = Start::aligned, Loads loads = Loads::any>
struct Layout {
    using Team = T;
    static constexpr i64 length = row_length;
    static constexpr bool resident = in_registers, cut = start == Start::anywhere, turned = start == Start::behind;
    static constexpr int step = row_step, count = (int)ceil_div(ceil_div(length + cut * (step - 1), step), T::per);
    // Whether some thread's last access lies beyond the row, and whether an access can lie there in part.
    static constexpr bool spare = cut || ceil_div(length, step) % T::per != 0, tail = cut || length % step != 0;

    static_assert(!turned || length % step == 0, "an access would be one in part");

    // Elements by which the first access sticks out.
    template <class E> DEVICE int lead(const E* row) { return cut ? (int)((u64)row / sizeof(E) % step) : turned; }
    // The column that stands where `column` is.
    DEVICE int place(int column) { return turned && column < 0 ? column + (int)length : column; }
    // Only the last access can be one in part; of a row that is cut, the first and the last two.
    DEVICE bool inside(int k) { return !tail || (cut ? k > 0 && k + 2 < count : k + 1 < count); }
    DEVICE bool whole(int k, int column) { return inside(k) || ((!cut || column >= 0) && column + step <= length); }
    DEVICE bool has(int k, int column) { return inside(k) || ((!cut || column >= 0) && column < length); }

    // Calls f(k, column) for every access k of this thread; `together` of them may load at the same time.
    template <int together, class F> DEVICE void each_of(F f, int lead = turned) {
#pragma unroll together
        for (int k = 0; k < count; k++) {
            int column = (k * T::per + T::lane()) * step - lead;
            if (!spare || (cut ? k + 2 < count : k + 1 < count) || column + turned < length) f(k, column);
        }
    }
    template <class F> DEVICE void each(F f, int lead = turned) { each_of<resident ? count : 4>(f, lead); }

    template <class E> DEVICE Pack<E, step> fetch(const E* p) {
        if constexpr (loads == Loads::lasting && step * sizeof(E) == 16) {
            Pack<E, step> v;
            load16_lasting(v.w, p);
            return v;
        } else if constexpr (loads != Loads::any) {
            return load_in_order<step>(p);
        } else {
            return load_pack<step>(p);
        }
    }
    // Access k; `beyond` stands for elements that the row does not have.
    template <class E> DEVICE Pack<E, step> take(const E* row, int k, int column, E beyond = E{}) {
        if constexpr (cut || turned) {
            Pack<E, step> p = fetch(row + column); // what sticks out lies in the same 16 bytes
            keep_row(p, last_of(row), k, column, beyond);
            return p;
        }
        if (whole(k, column)) return fetch(row + column);
        Vec<E, step> v;
#pragma unroll
        for (int i = 0; i < step; i++) v.v[i] = column + i < length ? row[column + i] : beyond;
        return pack(v);
    }
    // Every thread loads it: a branch would have to wait for what is loaded before it.
    template <class E> DEVICE E last_of(const E* row) {
        if constexpr (turned) return row[length - 1];
        else return E{};
    }
    template <class E> DEVICE void keep_row(Pack<E, step>& p, E last, int k, int column, E beyond) {
        if constexpr (turned) {
            Pack<E, step> first = p;
            put_first(first, last);
#pragma unroll
            for (int j = 0; k == 0 && j < (int)(sizeof(E) + 3) / 4; j++) p.w[j] = column < 0 ? first.w[j] : p.w[j];
            return;
        }
        if (whole(k, column)) return; // in all warps of a row but two
        Vec<E, step> v = unpack(p);
#pragma unroll
        for (int i = 0; i < step; i++) v.v[i] = column + i >= 0 && column + i < length ? v.v[i] : beyond;
        p = pack(v);
    }
    // The same of a row that starts at a multiple of 16 bytes, whatever the column. What lies outside of the row is any
    // number.
    template <class E> DEVICE Vec<E, step> take_across(const E* row, int column) {
        if constexpr (sizeof(E) == 2) {
            if (column > 0 && column + step + 2 <= length) return load_constant_across<step>(row + column);
        }
        Vec<E, step> v;
#pragma unroll
        for (int i = 0; i < step; i++) v.v[i] = load_constant<1>(row + max(0, min(column + i, (int)length - 1))).v[0];
        return v;
    }
    // Of a row that starts at a multiple of 16 bytes, what stands beside an access of a row that is turned.
    template <class E> DEVICE Pack<E, step> take_behind(const E* row, int column) {
        Vec<E, step> v, next = load_constant<step>(row + column + 1);
        v.v[0] = load_constant<1>(row + place(column)).v[0];
#pragma unroll
        for (int i = 1; i < step; i++) v.v[i] = next.v[i - 1];
        return pack(v);
    }
    template <class E> DEVICE void put(E* row, int k, int column, Vec<E, step> v) {
        if constexpr (turned) {
            Pack<E, step> p = pack(v);
            if (k == 0 && column < 0) return store_first(row, (int)length, p);
            return store_once<step>(row + column, p);
        }
        if (whole(k, column)) {
            // The compiler would make one store of both ways, element by element.
            if constexpr (cut) return store_once<step>(row + column, pack(v));
            else return store<step>(row + column, v);
        }
#pragma unroll
        for (int i = 0; i < step; i++)
            if (has(k, column + i)) row[column + i] = v.v[i];
    }
};

// Loads that follow are not made before this, where they would only take registers.
DEVICE void one_at_a_time() {
#ifndef KMARK_EMULATE
    asm volatile("" ::: "memory");
#endif
}

// This thread's part of a row.
template <class L, class E> struct Row {
    static constexpr bool resident = L::resident;
    Pack<E, L::step> held[L::resident ? L::count : 1];
    const E* row;
    int lead;
    E beyond;

    __device__ __forceinline__ Row() : row(nullptr), lead(0), beyond(E{}) {} // to be filled by its owner
    __device__ __forceinline__ explicit Row(const E* from, E fill = E{}) { ask(from, fill), settle(); }
    // The two halves of that. The ends of a row that is cut are sorted out behind a branch, which waits for what was asked for.
    __device__ __forceinline__ void ask(const E* from, E fill = E{}) {
        row = from, lead = L::lead(from), beyond = fill;
        if constexpr (L::resident) {
            each([&](int k, int column) {
                if constexpr (L::cut || L::turned) held[k] = L::fetch(row + column);
                else held[k] = L::take(row, k, column, beyond);
            });
        }
    }
    __device__ __forceinline__ void settle() {
        if constexpr (L::resident && (L::cut || L::turned)) {
            E last = L::last_of(row);
            each([&](int k, int column) { L::keep_row(held[k], last, k, column, beyond); });
        }
    }
    // Calls f(k, column) for every access of this thread. A second row is walked over as the first is.
    template <class F> __device__ __forceinline__ void each(F f) const { L::each(f, lead); }
    __device__ __forceinline__ Vec<E, L::step> at(int k, int column) const {
        if constexpr (L::resident) return unpack(held[k]);
        else return unpack(L::take(row, k, column, beyond));
    }
    __device__ __forceinline__ void set(int k, const Vec<E, L::step>& v) { held[k] = pack(v); }
    // To be called between two passes: the compiler converts again what it would otherwise keep in both formats, in
    // twice the registers. Of few elements it may keep both.
    __device__ __forceinline__ void convert_again() {
        if constexpr (L::resident && sizeof(E) < sizeof(acc_t) && L::count * L::step > 8) L::each([&](int k, int) { forget(held[k].w); });
    }
};

// This thread's part of row `row` of two tensors, of which neither waits for the other. (Where they are only added up, as in
// add_rmsnorm, the compiler sees to that.)
template <class L, class E, class F> struct TwoRows {
    Row<L, E> first;
    Row<L, F> second;

    __device__ __forceinline__ TwoRows() {}
    template <class A, class B> __device__ __forceinline__ TwoRows(const A& one, const B& other, i64 row, E fill = E{}) {
        first.ask(one.row(row), fill), second.ask(other.row(row));
        first.settle(), second.settle();
    }
};

// A vector of weights for the columns of rows of layout L, at a multiple of 16 bytes however those start. If `hold`, it stays in
// registers; else, if `constant`, loads do not wait for stores.
template <class L, class W, bool hold, bool constant = false, Loads loads = Loads::any> struct Weights {
    static constexpr bool resident = hold;
    static constexpr int step = L::step;
    using Aligned = Layout<typename L::Team, L::length, step, hold, Start::aligned, loads>;
    const W* row;
    Pack<W, step> held[hold ? L::count : 1];

    __device__ __forceinline__ Weights() : row(nullptr) {}
    __device__ __forceinline__ explicit Weights(const W* from) : row(from) {
        if constexpr (hold) L::each([&](int k, int column) { held[k] = take(k, column); });
    }
    __device__ __forceinline__ Pack<W, step> take(int k, int column) const {
        if constexpr (L::turned) return L::take_behind(row, column);
        else return Aligned::take(row, k, column);
    }
    __device__ __forceinline__ Vec<W, step> at(int k, int column) const {
        if constexpr (hold) return unpack(held[k]);
        else if constexpr (L::cut) return L::take_across(row, column);
        else if constexpr (constant) return load_constant<step>(row + column);
        else return unpack(take(k, column));
    }
};

// ---- One kernel for all row lengths --------------------------------------------------------------------------------

// Whether the rows of a case are aligned to 16 bytes, as its layout says; `memory` is the attribute, 0 dense, 1
// strided, 2 unaligned. Kernels rely on it: a pointer that is not what the case says is an error of the launch, not a wrong answer.
template <class E> DEVICE constexpr bool rows_aligned(int memory, i64 length) {
    return memory == 1 || (memory == 0 && length * sizeof(E) % 16 == 0);
}

// Whether all rows start one element behind a multiple of 16 bytes and are whole vectors long.
template <class E> DEVICE constexpr bool rows_behind(int memory, i64 length) { return memory == 2 && length * sizeof(E) % 16 == 0; }

// Elements by which rows can be read at a time.
template <class E> DEVICE constexpr int row_step(int memory, i64 length) {
    int bytes = rows_aligned<E>(memory, length) ? 16 : memory == 0 ? 8 : (int)sizeof(E);
    while (bytes > (int)sizeof(E) && length * sizeof(E) % bytes != 0) bytes /= 2;
    return bytes / (int)sizeof(E);
}

// Rows of E, `inputs` of them at a time. Short ones go to `lanes` threads of a warp each, which load `batch` of them
// before they sum the first; without a batch, a row has a block of `block` threads, or a cluster of `blocks`. `early`:
// weights are loaded with the row, not when its sum is known, and of two rows the second before the first is sorted out. `large`:
// there is much more than the caches hold. `start`: rows that are not aligned are read by 16 bytes; where they start anywhere,
// elements of 16 bits cost more to sort out than that saves, unless rows are long.
template <class E, i64 length, int inputs, int block, int blocks, int lanes, int batch, bool early, bool large, Start start = Start::aligned>
struct RowKernel {
    static constexpr i64 bytes = length * sizeof(E);
    static constexpr bool cut = start == Start::anywhere, turned = start == Start::behind;
    static constexpr bool aligned = rows_aligned<E>(MEMORY, length) || turned;
    static constexpr int step = cut || turned ? 16 / sizeof(E) : row_step<E>(MEMORY, length), access = step * (int)sizeof(E);
    static constexpr int threads = block, budget = threads > 512 ? 32 : 64;
    using Team = ::Team<(batch ? lanes : block), threads, blocks>;
    // Registers that hold a row, if they do.
    static constexpr i64 accesses = ceil_div(ceil_div(length + cut * (step - 1), step), Team::per);
    static constexpr i64 registers = accesses * inputs * ceil_div(access, 4);
    // Loads that some threads leave out are the compiler's: softmax's backward of 50000 columns took a fifth longer else.
    static constexpr bool even = !cut && ceil_div(length, step) % Team::per == 0;
    static constexpr Loads loads = registers > budget ? Loads::any : large && even ? Loads::lasting :
        early ? Loads::in_order : Loads::any;
    using Layout = ::Layout<Team, length, step, registers <= budget, start, loads>;

    // A vector of weights for the columns.
    template <class W> static constexpr bool hold = Layout::resident && !cut && (early || batch > 1) &&
        registers * (batch > 1 ? batch : 1) + accesses * ceil_div(step * (i64)sizeof(W), 4) <= budget;
    template <class W> static constexpr Loads weight_loads = hold<W> && early ? Loads::in_order : Loads::any;
    template <class W> using Weights = ::Weights<Layout, W, hold<W>, access < 16, weight_loads<W>>;

    // Brings a block's share of a long row into L2, for the block or cluster that comes `ahead` rows later: memory has
    // something to do while this one sums and exchanges. Too far ahead, and it is gone again when it is needed.
    template <int ahead, class T> DEVICE void fetch_later(const T& rows, i64 row) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
        if constexpr (ahead > 0 && aligned) {
            constexpr int all = (int)(bytes / 16), share = (int)ceil_div(all, blocks); // in 16 bytes
            int first = blocks > 1 ? cluster_rank() * share : 0, count = min(share, all - first);
            if (threadIdx.x == 0 && row + ahead < rows.rows && count > 0)
                asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                             ::"l"((const uint4*)(rows.row(row + ahead) - turned) + first), "r"(16 * count) : "memory");
        }
#endif
    }

    // Calls f(load(row), row, live) for all rows of this block. All threads take part in every call, because the
    // lanes of a warp reduce together; those without a row get the last one and must not write.
    template <class Load, class F> DEVICE void each(i64 m, Load load, F f) {
        if constexpr (blocks > 1) cluster_begin();
        if constexpr (batch == 0) {
            i64 row = (i64)blockIdx.x / blocks;
            auto held = load(row);
            f(held, row, true);
        } else {
            auto row = [&](int i) { return ((i64)blockIdx.x * batch + i) * Team::rows + Team::index(); };
            auto there = [&](int i) { return row(i) < m ? row(i) : m - 1; };
            decltype(load(m)) held[batch];
#pragma unroll
            for (int i = 0; i < batch; i++) held[i] = load(there(i));
#pragma unroll
            for (int i = 0; i < batch; i++) f(held[i], there(i), row(i) < m);
        }
    }
};

// ---- Arithmetic ----------------------------------------------------------------------------------------------------

template <int n> struct Constant { static constexpr int value = n; };

// 1 / sqrt(v) to the last bit or two: one step of Newton's, without the branches of a division and of a root.
#ifndef KMARK_EMULATE
DEVICE float inverse_root(float v) {
    float r;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
    return fmaf(r, 0.5f - 0.5f * v * r * r, r);
}
#else
DEVICE float inverse_root(float v) { return 1.0f / sqrtf(v); }
#endif
DEVICE double inverse_root(double v) { return 1.0 / sqrt(v); }

template <class A> DEVICE A minus_infinity() { return (A)double_of(0xfff0000000000000ull); }

// exp(x - top) for elements of type E. Where E has 16 bits, as a power of two with one rounding less on the way; that
// top * log2(e) is rounded does not matter, because all weights of a row and their sum are off by the same factor.
template <class E> struct Exp {
    static constexpr bool of_two = sizeof(E) == 2;
    acc_t top;
    __device__ __forceinline__ explicit Exp(acc_t max) : top(of_two ? scaled(max) : max) {}
    __device__ __forceinline__ acc_t operator()(acc_t x) const { return of_two ? exp_less(x, top) : exp_near(x - top); }
    // What was weighed with another maximum, by this one; the rounding of scaled(max) cancels.
    __device__ __forceinline__ acc_t again(const Exp& other) const {
        return of_two ? exp2_fast(other.top - top) : exp_near(other.top - top);
    }
};

// A maximum that is below all elements, but finite: no difference of infinities arises.
template <class A> DEVICE A no_maximum() { return sizeof(A) == 4 ? (A)-2e38 : (A)-1e308; }

// A thread's largest element of a row in registers, or no_maximum.
template <class L, class E> DEVICE acc_t largest(const Row<L, E>& x) {
    acc_t top = no_maximum<acc_t>();
    if constexpr (sizeof(E) == 2 && L::step > 1) {
        u32 low = down<E>(minus_infinity<acc_t>()).bits * 0x10001u, tops[2] = {low, low};
        x.each([&](int k, int) {
#pragma unroll
            for (int i = 0; i < L::step / 2; i++) tops[i % 2] = larger_pair(tops[i % 2], x.held[k].w[i], E{});
        });
        u32 both = larger_pair(tops[0], tops[1], E{});
        top = Max::of(top, Max::of((acc_t)up(E{(u16)both}), (acc_t)up(E{(u16)(both >> 16)})));
    } else {
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
#pragma unroll
            for (int i = 0; i < L::step; i++) top = Max::of(top, (acc_t)up(v.v[i]));
        });
    }
    return top;
}

// From each thread's maximum and its sums of weights, those of the row. One exchange.
template <class E, class T, int count> DEVICE void team_weigh(acc_t& top, acc_t (&sums)[count], int slot) {
    auto join = [&](auto lanes) {
        acc_t all[1] = {top};
        lanes_all<Max, decltype(lanes)::value>(all);
        acc_t shrink = Exp<E>(all[0]).again(Exp<E>(top));
        top = all[0];
#pragma unroll
        for (int i = 0; i < count; i++) sums[i] *= shrink;
        lanes_all<Add, decltype(lanes)::value>(sums);
    };
    join(Constant<(T::here < 32 ? T::here : 32)>{});
    if constexpr (exchanges<T>) {
        acc_t mine[count + 1] = {top};
#pragma unroll
        for (int i = 0; i < count; i++) mine[i + 1] = sums[i], sums[i] = 0;
        top = no_maximum<acc_t>();
        team_exchange<T>(mine, slot, [&](const acc_t (&of)[count + 1]) {
            acc_t next = Max::of(top, of[0]), old = Exp<E>(next).again(Exp<E>(top));
            acc_t other = Exp<E>(next).again(Exp<E>(of[0]));
            top = next;
#pragma unroll
            for (int i = 0; i < count; i++) sums[i] = sums[i] * old + of[i + 1] * other;
        });
        join(Constant<exchanged<T>>{});
    }
}
