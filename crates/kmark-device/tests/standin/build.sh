#!/bin/sh
# Builds the stand-in libraries into a folder: build.sh FOLDER [-DSTANDIN_WITHOUT_cuLaunchKernelEx ...]
# Set KMARK_STANDIN to that folder when they run: libnvrtc looks there for emulate.h.
# With NVRTC_FROM=FOLDER the driver alone is built, and libnvrtc is the one in that folder.
set -e
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
mkdir -p "$out"
flags="-std=c++17 -O2 -ftree-vectorize -ffp-contract=off -Wall -Wextra -shared -fPIC -fvisibility=hidden -pthread"
if [ -n "${NVRTC_FROM:-}" ]; then
    cp "$NVRTC_FROM/libnvrtc.so.13" "$out/"
else
    g++ $flags -Wl,-soname,libnvrtc.so.13 -Wl,-z,nodelete "$@" -o "$out/libnvrtc.so.13" "$here/libnvrtc.cpp" &
    nvrtc=$!
fi
g++ $flags -Wl,-soname,libcuda.so.1 -Wl,-z,nodelete "$@" -o "$out/libcuda.so.1" "$here/libcuda.cpp" -ldl
[ -z "${nvrtc:-}" ] || wait "$nvrtc"
cp "$here/emulate.h" "$out/emulate.h"
