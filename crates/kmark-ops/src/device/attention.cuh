// Which query meets which key: sequences, masks, and one head's rows in a tensor. Needs CAUSAL, WINDOW and SCALE of the
// prelude, and no other name of it.
#pragma once
#include "kmark.cuh"

// Rows of one head of one sequence, `step` elements apart.
template <class T> struct Head {
    T* first;
    i64 step;
    __device__ __forceinline__ T* row(i64 i) const { return first + i * step; }
};

// Head `head` of batch `b` in a dense tensor of shape [b, heads, len, d], or [b, len, heads, d].
template <class T> DEVICE Head<T> dense_out(const Tensor<T>& t, bool heads_first, i64 b, i64 heads, i64 len, i64 head) {
    if (heads_first) return Head<T>{t.row((b * heads + head) * len), t.pitch};
    return Head<T>{t.row(b * len * heads + head), heads * t.pitch};
}

// Head `head` of the sequence that starts at token `start`, in a tensor of shape [tokens, heads, d].
template <class T> DEVICE Head<T> ragged_out(const Tensor<T>& t, i64 start, i64 heads, i64 head) {
    return Head<T>{t.row(start * heads + head), heads * t.pitch};
}

// The same, to be read.
template <class T> DEVICE Head<const T> dense_head(const Tensor<T>& t, bool heads_first, i64 b, i64 heads, i64 len, i64 head) {
    Head<T> h = dense_out(t, heads_first, b, heads, len, head);
    return Head<const T>{h.first, h.step};
}
template <class T> DEVICE Head<const T> ragged_head(const Tensor<T>& t, i64 start, i64 heads, i64 head) {
    Head<T> h = ragged_out(t, start, heads, head);
    return Head<const T>{h.first, h.step};
}

// Key minus query, counted from the end of the sequence: a pair is seen if this lies in [DIFF_LOW, DIFF_HIGH].
constexpr int FAR = 1 << 30;
constexpr int REACH = WINDOW > 0 && WINDOW < FAR ? (int)WINDOW : FAR;
constexpr bool BOUND_HIGH = CAUSAL || WINDOW > 0, BOUND_LOW = WINDOW > 0;
constexpr int DIFF_LOW = 1 - REACH, DIFF_HIGH = CAUSAL ? 0 : REACH - 1;

struct Sequence {
    int queries, keys;

    __device__ __forceinline__ int shift() const { return keys - queries; }
    __device__ __forceinline__ int clamp(int at, int end) const { return max(0, min(at, end)); }

    // Query i sees the keys from low(i) to below high(i). Both grow with i.
    __device__ __forceinline__ int low(int i) const { return BOUND_LOW ? clamp(i + shift() + DIFF_LOW, keys) : 0; }
    __device__ __forceinline__ int high(int i) const {
        return BOUND_HIGH ? max(clamp(i + shift() + DIFF_HIGH + 1, keys), low(i)) : keys;
    }
    __device__ __forceinline__ bool sees(int i, int j) const {
        int diff = j - i - shift();
        return i < queries && j < keys && (!BOUND_LOW || diff >= DIFF_LOW) && (!BOUND_HIGH || diff <= DIFF_HIGH);
    }

    // The other way round: key j is seen by the queries from first(j) to below last(j).
    __device__ __forceinline__ int first(int j) const { return BOUND_HIGH ? clamp(j - shift() - DIFF_HIGH, queries) : 0; }
    __device__ __forceinline__ int last(int j) const { return BOUND_LOW ? clamp(j - shift() - DIFF_LOW + 1, queries) : queries; }
};

DEVICE double infinity() { return double_of(0x7ff0000000000000ull); }

DEVICE double logit_scale(i64 d) { return SCALE_AUTO ? 1.0 / sqrt((double)d) : SCALE; }

constexpr double LOG2_E = 1.4426950408889634, LN_2 = 0.6931471805599453;
