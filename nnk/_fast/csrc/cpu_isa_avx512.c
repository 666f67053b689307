/* The CPU engine's loops for avx512. No target with fused multiply-add is named: nothing may contract. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"

#if NNK_X86
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#define ISA avx512
#define VL 16
#define MR 12
#define NV 2
#include "cpu_isa.inc"
#endif
