#!/bin/sh
# Runs kmark with the stand-in as its GPU, built if it is older than its sources:
#   run.sh 89|90 verify gemm --device cuda --configs 130x200x144 --dtype bf16 --impl ./mine.cu
# 90 is a Hopper. $KMARK names the binary, else it is that of target/release. Why a launch failed is printed at the end.
set -e
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
folder=$root/target/standin
arch=$1
shift
if [ -z "$(find "$folder" -name libcuda.so.1 -newer "$here/build.sh" 2>/dev/null)" ] ||
    [ -n "$(find "$here" -name '*.h' -newer "$folder/libcuda.so.1" -o -name 'lib*.cpp' -newer "$folder/libcuda.so.1")" ]; then
    sh "$here/build.sh" "$folder"
fi
export KMARK_CUDA_PATH="$folder" KMARK_STANDIN="$folder" KMARK_CACHE="$folder/cache" KMARK_STANDIN_ARCH="$arch"
export KMARK_STANDIN_MEMORY="${KMARK_STANDIN_MEMORY:-268435456}" KMARK_STANDIN_FLAGS="${KMARK_STANDIN_FLAGS:--O0}"
export KMARK_STANDIN_WHY="$folder/why"
[ -n "$KMARK_PYTHON" ] || export KMARK_PYTHON="$root/target/numpy-env/bin/python"
rm -f "$KMARK_STANDIN_WHY"
status=0
"${KMARK:-$root/target/release/kmark}" "$@" || status=$?
[ ! -f "$KMARK_STANDIN_WHY" ] || sort "$KMARK_STANDIN_WHY" | uniq -c
exit $status
