# cython: language_level=3
"""Little-endian loads and stores, and the keyed hash of the compiled hash tables.

The callers check bounds first: nothing here does. memcpy keeps unaligned access defined; compilers turn it into
one instruction.
"""

from libc.stdint cimport uint32_t, uint64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define NNK_LE32(x) __builtin_bswap32(x)
    #define NNK_LE64(x) __builtin_bswap64(x)
    #else
    #define NNK_LE32(x) (x)
    #define NNK_LE64(x) (x)
    #endif

    static inline uint32_t nnk_load_u32(const unsigned char *at) {
        uint32_t word;
        memcpy(&word, at, 4);
        return NNK_LE32(word);
    }

    static inline uint64_t nnk_load_u64(const unsigned char *at) {
        uint64_t word;
        memcpy(&word, at, 8);
        return NNK_LE64(word);
    }

    static inline void nnk_store_u32(unsigned char *at, uint32_t word) {
        word = NNK_LE32(word);
        memcpy(at, &word, 4);
    }

    static inline void nnk_store_u64(unsigned char *at, uint64_t word) {
        word = NNK_LE64(word);
        memcpy(at, &word, 8);
    }

    static inline uint64_t nnk_fold_multiply(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }

    /* A hash for tables in memory only: keyed, so that a crafted file cannot make all keys collide. */
    static inline uint64_t nnk_hash_bytes(const unsigned char *at, uint64_t length, uint64_t seed) {
        uint64_t state = seed ^ nnk_fold_multiply(length ^ 0x9e3779b97f4a7c15ull, seed | 1u);
        uint64_t left = length;
        while (left >= 8) {
            state = nnk_fold_multiply(state ^ nnk_load_u64(at), 0xa0761d6478bd642full ^ seed);
            at += 8;
            left -= 8;
        }
        if (left) {
            uint64_t tail = 0;
            memcpy(&tail, at, left);
            state = nnk_fold_multiply(state ^ tail ^ (left << 56), 0xe7037ed1a0b428dbull ^ seed);
        }
        return nnk_fold_multiply(state ^ seed, 0x8ebc6af09c88c6e3ull);
    }
    """
    uint32_t nnk_load_u32(const unsigned char *at) noexcept nogil
    uint64_t nnk_load_u64(const unsigned char *at) noexcept nogil
    void nnk_store_u32(unsigned char *at, uint32_t word) noexcept nogil
    void nnk_store_u64(unsigned char *at, uint64_t word) noexcept nogil
    uint64_t nnk_hash_bytes(const unsigned char *at, uint64_t length, uint64_t seed) noexcept nogil
