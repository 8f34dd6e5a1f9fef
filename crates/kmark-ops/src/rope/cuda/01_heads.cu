// A thread turns a vector of pairs of one head, both of its vectors under way together with cosines and sines, which
// L1 has for the other heads. Heads of k count on from those of q. Where rows cannot be cut into vectors, blocks take
// whole positions through shared memory instead, cut where memory is aligned. Where all rows start one element behind
// an aligned address, vectors begin one element earlier, and threads hand on the element that lies in another's: halves
// through shared memory, pairs that lie beside each other within a warp.
// kmark: constants b,s,hq,hk,d
// kmark: let R = rotary==0?d:rotary
// kmark: let HEADS = hq+(k.rows>0?hk:0)
// Elements of a vector: as many as the pairs and the rows can be cut into; fewer in small cases, whose code is shorter.
// kmark: let DIVIDES(W) = W*size<=16&&R/2%W==0&&d%W==0
// kmark: let FIT = DIVIDES(8)?8:DIVIDES(4)?4:DIVIDES(2)?2:1
// kmark: let SMALL = b*s*HEADS*(R/2)<=sms*512
// kmark: let V = SMALL?min(memory.unaligned?1:2,FIT):FIT
// Parts of a head: V pairs that are turned; behind them up to 2 V dimensions that are copied, unless it is in place.
// kmark: let TURNED = R/2/V
// kmark: let PARTS = TURNED+(form.out?ceil(d-R,2*V):0)
// kmark: let STAGED = FIT*size<8&&!memory.strided&&!SMALL&&HEADS*d*size<=40000
// kmark: let BEHIND = !STAGED&&memory.unaligned&&V>1
// Whose pairs lie across threads: they are faster with the registers that one block to a multiprocessor allows; 0 is the compiler's choice.
// kmark: let BESIDE = BEHIND&&style.interleaved
// kmark: let PLACES = max(1,16384/(HEADS*d*size))
// kmark: let THREADS = !STAGED&&b*s*HEADS*PARTS<=sms*256?128:256
// kmark: let LARGE = 2*b*s*HEADS*d*size>8*l2
// kmark: kernel rope grid=STAGED?ceil(b*s,PLACES):ceil(b*s*HEADS*PARTS,THREADS) block=THREADS
#include "map.cuh"

template <int W, class T> DEVICE void table(acc_t* to, const T* from) {
    constexpr int step = W < lanes<T> ? W : lanes<T>;
#pragma unroll
    for (int j = 0; j < W; j += step) {
        Vec<T, step> t = load<step>(from + j);
#pragma unroll
        for (int i = 0; i < step; i++) to[j + i] = t.v[i];
    }
}

// Pair j.
DEVICE void turn_pair(q_t& first, q_t& second, const acc_t (&cos)[V], const acc_t (&sin)[V], int j) {
    acc_t x1 = up(first), x2 = up(second);
    first = down<q_t>(x1 * cos[j] - x2 * sin[j]);
    second = down<q_t>(x2 * cos[j] + x1 * sin[j]);
}

// V pairs in two vectors: the members of a pair stand at the same place of both, or beside each other.
DEVICE void turn(Pack<q_t, V> (&packs)[2], const acc_t (&cos)[V], const acc_t (&sin)[V]) {
    constexpr bool neox = STYLE == STYLE_neox;
    Vec<q_t, V> x[2] = {unpack(packs[0]), unpack(packs[1])};
#pragma unroll
    for (int j = 0; j < V; j++) {
        q_t& first = neox ? x[0].v[j] : x[2 * j / V].v[2 * j % V];
        q_t& second = neox ? x[1].v[j] : x[(2 * j + 1) / V].v[(2 * j + 1) % V];
        turn_pair(first, second, cos, sin, j);
    }
    packs[0] = pack(x[0]), packs[1] = pack(x[1]);
}

// Where a head of a place (sequence and position) starts.
template <class T> DEVICE T* head_at(const Tensor<T>& q, const Tensor<T>& k, i64 place, int head) {
    i64 q_pitch = MEMORY == MEMORY_strided ? q.pitch : D, k_pitch = MEMORY == MEMORY_strided ? k.pitch : D;
    return !K || head < HQ ? q.ptr + (place * HQ + head) * q_pitch : k.ptr + (place * HK + head - HQ) * k_pitch;
}

// ---- One element behind --------------------------------------------------------------------------------------------

// Vectors of a head begin one element before their first. So the last of a thread's elements may lie in the first vector
// of another thread: it is turned here and stored there.
// Tensors start one element behind a multiple of 16 bytes; so each of these vectors lies at a multiple of its size.
static_assert(!BEHIND || (MEMORY == MEMORY_unaligned && D % V == 0 && R / 2 % V == 0 && V * sizeof(q_t) <= 16));

// The pairs of halves; `last` is the element that lies elsewhere, if this thread `gives` one: of the head's last pair, the first
// member begins the second vector, and another head's element the first.
DEVICE void turn_halves(Pack<q_t, V> (&packs)[2], q_t& last, bool gives, const acc_t (&cos)[V], const acc_t (&sin)[V]) {
    Vec<q_t, V> x[2] = {unpack(packs[0]), unpack(packs[1])};
    q_t other = x[0].v[0];
    if (gives) x[0].v[0] = x[1].v[0], x[1].v[0] = last;
#pragma unroll
    for (int j = 0; j < V; j++) turn_pair(x[0].v[j], x[1].v[j], cos, sin, j);
    if (gives) last = x[1].v[0], x[1].v[0] = x[0].v[0], x[0].v[0] = other;
    packs[0] = pack(x[0]), packs[1] = pack(x[1]);
}

// Pairs beside each other: each vector begins with the second member of another thread's pair, and its own last pair has its second
// in `last`.
DEVICE void turn_beside(Pack<q_t, V> (&packs)[2], q_t (&last)[2], const acc_t (&cos)[V], const acc_t (&sin)[V]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        Vec<q_t, V> x = unpack(packs[h]);
#pragma unroll
        for (int j = 0; j < V / 2; j++) {
            q_t& second = 2 * j + 2 < V ? x.v[(2 * j + 2) % V] : last[h];
            turn_pair(x.v[(2 * j + 1) % V], second, cos, sin, h * (V / 2) + j);
        }
        packs[h] = pack(x);
    }
}

// Two elements as they go from thread to thread.
template <class T> struct Two {
    static constexpr int words = sizeof(T) < 4 ? 1 : 2 * (int)sizeof(T) / 4;
    u32 w[words];
    __device__ __forceinline__ Two(T first, T second) {
        if constexpr (sizeof(T) == 2) w[0] = (u32)first.bits | (u32)second.bits << 16;
        else memcpy(w, &first, sizeof first), memcpy(w + words / 2, &second, sizeof second);
    }
    __device__ __forceinline__ T at(int which) const {
        T v;
        if constexpr (sizeof(T) == 2) v.bits = (u16)(w[0] >> 16 * which);
        else memcpy(&v, w + which * (words / 2), sizeof v);
        return v;
    }
    // What a lane of the warp has.
    __device__ __forceinline__ Two of(u32 lanes, int lane) const {
        Two v = *this;
#pragma unroll
        for (int i = 0; i < words; i++) v.w[i] = __shfl_sync(lanes, w[i], lane);
        return v;
    }
};

// Cosines or sines for a vector that begins one place earlier.
DEVICE void move_on(acc_t (&to)[V], acc_t first) {
#pragma unroll
    for (int j = V - 1; j > 0; j--) to[j] = to[j - 1];
    to[0] = first;
}

// Pairs beside each other: what a thread and others of its warp have of each other's vectors. Those of a head's parts are half a head
// apart; so what follows the last part's first vector begins the first part's second one, and what follows its second vector is the
// next head's, or what is copied.
struct Handed {
    static constexpr bool all = R == D, copies = PARTS > TURNED;
    static constexpr int end = TURNED - 1; // the last part
    // Warps have whole heads.
    static constexpr bool whole = PARTS == TURNED && 32 % TURNED == 0;
    int lane, part;
    bool given[2], takes[2], taken[2]; // by the thread that has it; from another's pair; from a thread of this warp

    template <class I> __device__ __forceinline__ Handed(I at, u32 of, u32 head, i64 units) : lane(threadIdx.x % 32), part((int)of) {
        bool up = lane < 31 && (i64)at + 1 < units, down = lane > 0;
        // The next head is not the next in memory behind the last of q and of k, unless there is no k.
        given[0] = whole || (part < end ? up : lane >= end);
        given[1] = part < end ? whole || up : up && (all ? !K || (head + 1 != HQ && head + 1 != HEADS) : copies);
        takes[0] = part == 0 ? all : part <= end + 1;
        takes[1] = part <= end;
        taken[0] = takes[0] && (part > 0 ? whole || down : down && !(K && (head == 0 || head == HQ)));
        taken[1] = takes[1] && (whole || (part == 0 ? lane + end < 32 : down));
    }
    // The elements that follow the vectors, where they are given.
    __device__ __forceinline__ void fetch(u32 lanes, const Pack<q_t, V> (&x)[2], q_t (&last)[2]) const {
        Two<q_t> firsts(unpack(x[0]).v[0], unpack(x[1]).v[0]);
        Two<q_t> next = firsts.of(lanes, lane + 1), start = firsts.of(lanes, lane - part);
        if (given[0]) last[0] = part < end ? next.at(0) : start.at(1);
        if (given[1]) last[1] = part < end ? next.at(1) : next.at(0);
    }
    // Back to the vectors that they begin.
    __device__ __forceinline__ void on(u32 lanes, Pack<q_t, V> (&x)[2], const q_t (&last)[2]) const {
        Two<q_t> lasts(last[0], last[1]);
        Two<q_t> before = lasts.of(lanes, lane - 1), ends = lasts.of(lanes, lane + end);
        if (taken[0]) put_first(x[0], part == 0 || part > end ? before.at(1) : before.at(0));
        if (taken[1]) put_first(x[1], part == 0 ? ends.at(0) : before.at(1));
    }
};

// ---- A thread's two vectors ----------------------------------------------------------------------------------------

template <class In, class Out>
DEVICE void rotate(const Args& a, const In& q, const In& k, const Out& q_out, const Out& k_out) {
    constexpr bool neox = STYLE == STYLE_neox, copies = PARTS > TURNED;
    // Whether a thread's vectors are half a head apart, so that those of a warp lie side by side.
    constexpr bool apart = neox || V > 1, beside = BESIDE;
    constexpr i64 UNITS = B * S * HEADS * PARTS;
    using index = typename Choose<(UNITS < 1ll << 31), u32, u64>::type;
    index at = (index)blockIdx.x * THREADS + threadIdx.x;
    u32 lanes = 0xffffffffu;
    if constexpr (beside && UNITS % THREADS != 0) lanes = __ballot_sync(lanes, at < UNITS);
    if (UNITS % THREADS != 0 && at >= UNITS) return;
    index place = at / (HEADS * PARTS);
    u32 rest = (u32)(at - place * (HEADS * PARTS)), head = rest / (u32)PARTS, part = rest % (u32)PARTS;

    bool turns = !copies || part < TURNED;
    int first = !turns ? (int)(R + (part - TURNED) * 2 * V) : part * (apart ? V : 2 * V);
    int second = first + (turns && apart ? (int)(R / 2) : (int)V);
    bool two = turns || second < D;
    Pack<q_t, V> x[1][2] = {};
    const q_t* row = head_at(q, k, (i64)place, head);
    load_here<LARGE != 0>(x[0][0], row + first - BEHIND);
    if (two) load_here<LARGE != 0>(x[0][1], row + second - BEHIND);
    // The last of its elements, if it lies in another thread's vector.
    bool gives = BEHIND && neox && part == 0;
    int last_at = (int)R - 1;
    q_t last{};
    if (gives) last = row[last_at];
    // Of pairs beside each other, the last of each vector; those that no thread of the warp has come from memory.
    Handed hand(at, part, head, UNITS);
    q_t lasts[2]{};
    if constexpr (beside) {
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (turns && !hand.given[h]) lasts[h] = row[(h == 0 ? first : second) + V - 1];
    }
    acc_t cos[V], sin[V];
    if (turns) {
        index position = B == 1 ? place : place % (index)S;
        if constexpr (apart && !neox) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                table<V / 2>(cos + h * (V / 2), a.cos.row(position) + h * (R / 4) + part * (V / 2));
                table<V / 2>(sin + h * (V / 2), a.sin.row(position) + h * (R / 4) + part * (V / 2));
            }
        } else {
            table<V>(cos, a.cos.row(position) + part * V);
            table<V>(sin, a.sin.row(position) + part * V);
        }
        if constexpr (BEHIND && neox) {
            int before = part > 0 ? part * V - 1 : (int)(R / 2) - 1;
            move_on(cos, a.cos.at(position, before));
            move_on(sin, a.sin.at(position, before));
        }
    }
    if constexpr (!beside) loads_first(x); // else they wait for each other
    if constexpr (!BEHIND) {
        if (turns) turn(x[0], cos, sin);
        q_t* to = head_at(q_out, k_out, (i64)place, head);
        store_pack(to + first, x[0][0]);
        if (two) store_pack(to + second, x[0][1]);
    } else if constexpr (beside) {
        hand.fetch(lanes, x[0], lasts);
        if (turns) turn_beside(x[0], lasts, cos, sin);
        hand.on(lanes, x[0], lasts);
        __syncwarp(lanes); // in place, too, all is loaded before anything is stored
        q_t* to = head_at(q_out, k_out, (i64)place, head);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int from = h == 0 ? first : second;
            if (turns && !hand.given[h]) to[from + V - 1] = lasts[h];
            // What nobody turns is stored as it was loaded, unless it lies before the tensor; the tensor's last is in no vector.
            bool before = h == 0 && part == 0 && place == 0 && (head == 0 || head == HQ);
            if (h == 1 && !two) continue;
            if (hand.taken[h] || (!hand.takes[h] && !before)) store_pack(to + from - 1, x[0][h]);
            else store_pieces<1>(to + from - 1, x[0][h]);
        }
        bool ends = copies && part + 1 == PARTS && place + 1 == B * S && (head + 1 == HQ || head + 1 == HEADS);
        if (ends) to[D - 1] = row[D - 1];
    } else {
        if (turns) turn_halves(x[0], last, gives, cos, sin);
        q_t* to = head_at(q_out, k_out, (i64)place, head);
        // Handed on by shared memory. In place, too, all is loaded before anything is stored.
        __shared__ q_t handed[THREADS];
        handed[threadIdx.x] = last;
        __syncthreads();
        // What ends the turned part of a head lies in the next head's first vector, or in the first that is copied. The next
        // head is not the next in memory behind the last of q and of k, unless there is no k.
        constexpr bool all = R == D;
        constexpr u32 distance = TURNED; // to the thread that stores it
        bool takes = part == (all ? 0 : TURNED);
        bool taken = takes && threadIdx.x >= distance && !(all && K && part == 0 && (head == 0 || head == HQ));
        if (taken) put_first(x[0][0], handed[threadIdx.x - distance]);
        bool given = threadIdx.x + distance < THREADS && at + distance < UNITS;
        given = given && (all ? !K || (head + 1 != HQ && head + 1 != HEADS) : copies);
        if (gives && !given) to[last_at] = last;
        // What nobody turns is stored as it was loaded, unless it lies before the tensor; the tensor's last is in no vector.
        bool loaded = !takes && !(part == 0 && place == 0 && (head == 0 || head == HQ));
        if (taken || loaded) store_pack(to + first - 1, x[0][0]);
        else store_pieces<1>(to + first - 1, x[0][0]);
        if (two) store_pack(to + second - 1, x[0][1]);
        bool ends = copies && part + 1 == PARTS && place + 1 == B * S && (head + 1 == HQ || head + 1 == HEADS);
        if (ends) to[D - 1] = row[D - 1];
    }
}

// ---- Through shared memory -----------------------------------------------------------------------------------------

constexpr int WIDE = lanes<q_t>;

// 16 bytes to shared memory, without a register to wait in.
#ifndef KMARK_EMULATE
DEVICE void copy16_later(q_t* to, const q_t* from) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
DEVICE void copy16_later(q_t* to, const q_t* from) { memcpy(to, from, 16); }
DEVICE void wait_for_copies() {}
#endif

// n elements to or from a tile that is cut as their memory is: vector(i) for the starts of whole vectors, single(i) for
// elements before and behind them.
template <class F, class G> DEVICE void each_of_run(int lead, int n, F vector, G single) {
    int head = min((WIDE - lead) % WIDE, n), body = (n - head) / WIDE * WIDE, tail = n - head - body;
#pragma unroll 1
    for (int i = threadIdx.x * WIDE; i < body; i += THREADS * WIDE) vector(head + i);
    if (threadIdx.x < head) single(threadIdx.x);
    if (threadIdx.x < tail) single(head + body + threadIdx.x);
}
DEVICE void copy_in(q_t* tile, const q_t* from, int lead, int n) {
    each_of_run(lead, n, [&](int i) { copy16_later(tile + i, from + i); }, [&](int i) { tile[i] = from[i]; });
}
DEVICE void copy_out(q_t* to, const q_t* tile, int lead, int n) {
    auto vector = [&](int i) { store_pack(to + i, *reinterpret_cast<const Pack<q_t, WIDE>*>(tile + i)); };
    each_of_run(lead, n, vector, [&](int i) { to[i] = tile[i]; });
}

// A thread turns one pair of up to four heads at a time.
DEVICE void turn_tile(const Args& a, q_t* tile, i64 place, int places, int heads) {
    constexpr int half = R / 2, together = 4;
    int groups = (heads + together - 1) / together;
    for (int at = threadIdx.x; at < places * groups * half; at += THREADS) {
        int pair = at % half, group = at / half % groups, row = at / half / groups;
        i64 position = (place + row) % S;
        acc_t cos = a.cos.at(position, pair), sin = a.sin.at(position, pair);
        q_t* head = tile + (row * heads + group * together) * (int)D;
        int first = STYLE == STYLE_neox ? pair : 2 * pair, second = STYLE == STYLE_neox ? pair + half : 2 * pair + 1;
#pragma unroll
        for (int k = 0; k < together; k++) {
            if (group * together + k >= heads) break;
            acc_t x1 = up(head[k * D + first]), x2 = up(head[k * D + second]);
            head[k * D + first] = down<q_t>(x1 * cos - x2 * sin);
            head[k * D + second] = down<q_t>(x2 * cos + x1 * sin);
        }
    }
}

template <class In, class Out>
DEVICE void through_tile(const Args& a, const In& q, const In& k, const Out& q_out, const Out& k_out) {
    constexpr int k_at = (PLACES * HQ * D / WIDE + 2) * WIDE, k_heads = K ? HK : 0; // k's tile starts at a vector
    __shared__ alignas(16) q_t tile[k_at + PLACES * k_heads * D + 2 * WIDE];
    i64 place = (i64)blockIdx.x * PLACES, q_at = place * HQ * D, from_k = place * HK * D;
    int places = (int)min((i64)PLACES, B * S - place), nq = places * (int)(HQ * D), nk = places * (int)(k_heads * D);
    // Inputs and outputs are aligned alike.
    int q_lead = (int)((u64)(q.ptr + q_at) / sizeof(q_t) % WIDE);
    int k_lead = (int)((u64)(k.ptr + from_k) / sizeof(q_t) % WIDE);
    copy_in(tile + q_lead, q.ptr + q_at, q_lead, nq);
    if (K) copy_in(tile + k_at + k_lead, k.ptr + from_k, k_lead, nk);
    wait_for_copies();
    __syncthreads();
    turn_tile(a, tile + q_lead, place, places, HQ);
    if (K) turn_tile(a, tile + k_at + k_lead, place, places, HK);
    __syncthreads();
    copy_out(q_out.ptr + q_at, tile + q_lead, q_lead, nq);
    if (K) copy_out(k_out.ptr + from_k, tile + k_at + k_lead, k_lead, nk);
}

// A template, so that only the form of this case is compiled: in place, q and k are not constant.
template <class A> DEVICE void by_form(const A& a) {
    auto run = [&](const auto& q, const auto& k, const auto& q_out, const auto& k_out) {
        if constexpr (STAGED) through_tile(a, q, k, q_out, k_out);
        else rotate(a, q, k, q_out, k_out);
    };
    if constexpr (FORM == FORM_inplace && K) run(a.q, a.k, a.q, a.k);
    else if constexpr (FORM == FORM_inplace) run(a.q, a.q, a.q, a.q);
    else if constexpr (K) run(a.q, a.k, a.q_out, a.k_out);
    else run(a.q, a.q, a.q_out, a.q_out);
}

KERNEL __launch_bounds__(THREADS, BESIDE) rope(const __grid_constant__ Args a) { by_form(a); }
