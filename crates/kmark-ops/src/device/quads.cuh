// Pieces of 128 columns of rows of n, quantised by a team of threads: vectors of 16 bytes where rows are whole vectors long. Other
// rows start anywhere; a lane has four neighbours then, which are read by the words they lie in and stored by words of q.
#pragma once
#include "fp8.cuh"
#include "loads.cuh"

// Elements `column` to `column` + 3 of a row that has two more behind them. What is asked for is under way together.
template <class T> DEVICE Pack<T, 4> get_quad(const T* row, int column) {
    Vec<T, 4> v;
    if constexpr (sizeof(T) == 2) {
        v = load_constant_across<4>(row + column);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) v.v[i] = load_constant<1>(row + column + i).v[0];
    }
    return pack(v);
}
// The same at the end of a row of n, with 0 for what it does not have.
template <class T> DEVICE Pack<T, 4> get_last_quad(const T* row, int column, int n) {
    Vec<T, 4> v;
#pragma unroll
    for (int i = 0; i < 4; i++) v.v[i] = column + i < n ? load_constant<1>(row + column + i).v[0] : T{};
    return pack(v);
}

// Each lane's four bytes, next to those of the lane before it. All lanes of a warp take part.
DEVICE void put_quad(u8* to, u32 quad) {
    int lane = threadIdx.x % 32, off = (int)((u64)to % 4);
    u32 before = __shfl_up_sync(0xffffffffu, quad, 1);
    u32 word = off == 0 ? quad : quad << 8 * off | before >> (32 - 8 * off);
    if (lane > 0 || off == 0) *reinterpret_cast<u32*>(to - off) = word;
    // The first and the last word have bytes of others, too.
    if (off > 0 && (lane == 0 || lane == 31)) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if ((i < 4 - off) == (lane == 0)) to[i] = (u8)(quad >> 8 * i);
    }
}

// The V columns of a thread. `even`: rows are whole vectors long; `behind`: they start one element behind a multiple of a vector.
template <class T, class Q, i64 n, int V, bool even, bool behind, bool lasting> struct Piece {
    int column;

    // `inside`: the rows and the columns of all threads of the block are there, and two columns more where rows are odd. Else
    // `row_there` says it of the row.
    template <bool inside> __device__ __forceinline__ Pack<T, V> get(const T* row, bool row_there) const {
        if constexpr (even) {
            Pack<T, V> none = {};
            return inside || (row_there && column < n) ? load_vector<V, behind, lasting>(row + column) : none;
        } else if constexpr (inside) {
            return get_quad(row, column);
        } else {
            return get_last_quad(row, column, row_there ? (int)n : 0);
        }
    }
    template <bool inside> __device__ __forceinline__ void put(Q* row, bool row_there, const Pack<Q, V>& q) const {
        if constexpr (even) {
            if (inside || (row_there && column < n)) store_once<V>(row + column, q);
        } else if constexpr (inside) {
            put_quad((u8*)(row + column), q.w[0]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (row_there && column + i < n) ((u8*)(row + column))[i] = (u8)(q.w[0] >> 8 * i);
        }
    }
};
struct Inside { static constexpr bool value = true; };
struct AtTheEnd { static constexpr bool value = false; };
