/* The CPU engine's loops for avx2. No target with fused multiply-add is named: nothing may contract. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"

#if NNK_X86
#pragma GCC target("avx2")
#define ISA avx2
#define VL 8
#define MR 6
#define NV 2
#include "cpu_isa.inc"
#endif
