/* The CPU engine's loops for the architecture's baseline (SSE2 on x86-64). */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"

#define ISA base
#define VL 4
#define MR 6
#define NV 2
#include "cpu_isa.inc"
