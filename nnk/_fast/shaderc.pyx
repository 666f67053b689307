# cython: language_level=3
"""GLSL to SPIR-V through a statically linked shaderc.

Making a compiler takes about 60 ms and a compilation about 0.4 ms, so one compiler is made on the first use and kept
for the life of the process. Optimisation stays off: spirv-opt contracts and reorders float arithmetic.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pythread cimport PyThread_acquire_lock, PyThread_allocate_lock, PyThread_release_lock, PyThread_type_lock

from nnk.errors import CompileError


cdef extern from "shaderc/shaderc.h" nogil:
    ctypedef struct shaderc_compiler:
        pass
    ctypedef struct shaderc_compile_options:
        pass
    ctypedef struct shaderc_compilation_result:
        pass
    ctypedef shaderc_compiler* shaderc_compiler_t
    ctypedef shaderc_compile_options* shaderc_compile_options_t
    ctypedef shaderc_compilation_result* shaderc_compilation_result_t
    ctypedef enum shaderc_shader_kind:
        shaderc_glsl_compute_shader
    ctypedef enum shaderc_compilation_status:
        shaderc_compilation_status_success
    ctypedef enum shaderc_optimization_level:
        shaderc_optimization_level_zero
    ctypedef enum shaderc_target_env:
        shaderc_target_env_vulkan
    ctypedef enum shaderc_spirv_version:
        shaderc_spirv_version_1_5
    ctypedef enum shaderc_source_language:
        shaderc_source_language_glsl
    unsigned int shaderc_env_version_vulkan_1_2

    shaderc_compiler_t shaderc_compiler_initialize() noexcept
    shaderc_compile_options_t shaderc_compile_options_initialize() noexcept
    void shaderc_compile_options_set_source_language(shaderc_compile_options_t, shaderc_source_language) noexcept
    void shaderc_compile_options_set_optimization_level(shaderc_compile_options_t, shaderc_optimization_level) noexcept
    void shaderc_compile_options_set_target_env(shaderc_compile_options_t, shaderc_target_env, unsigned int) noexcept
    void shaderc_compile_options_set_target_spirv(shaderc_compile_options_t, shaderc_spirv_version) noexcept
    void shaderc_compile_options_set_suppress_warnings(shaderc_compile_options_t) noexcept
    shaderc_compilation_result_t shaderc_compile_into_spv(
        shaderc_compiler_t, const char* text, size_t text_bytes, shaderc_shader_kind, const char* name,
        const char* entry_point, shaderc_compile_options_t) noexcept
    shaderc_compilation_status shaderc_result_get_compilation_status(shaderc_compilation_result_t) noexcept
    const char* shaderc_result_get_error_message(shaderc_compilation_result_t) noexcept
    const char* shaderc_result_get_bytes(shaderc_compilation_result_t) noexcept
    size_t shaderc_result_get_length(shaderc_compilation_result_t) noexcept
    void shaderc_result_release(shaderc_compilation_result_t) noexcept
    void shaderc_get_spv_version(unsigned int* version, unsigned int* revision) noexcept


# Generated kernels have a few kilobytes; a source beyond this limit is a mistake of the caller.
cdef enum:
    MAX_SOURCE_BYTES = 16777216

cdef shaderc_compiler_t _compiler = NULL
cdef shaderc_compile_options_t _options = NULL
cdef PyThread_type_lock _start_lock = PyThread_allocate_lock()


cdef int _start() noexcept nogil:
    """Make the compiler and its options once; return 0 when memory runs out."""
    global _compiler, _options
    cdef shaderc_compile_options_t options
    PyThread_acquire_lock(_start_lock, 1)
    if _compiler == NULL:
        options = shaderc_compile_options_initialize()
        if options != NULL:
            shaderc_compile_options_set_source_language(options, shaderc_source_language_glsl)
            shaderc_compile_options_set_optimization_level(options, shaderc_optimization_level_zero)
            shaderc_compile_options_set_target_env(options, shaderc_target_env_vulkan, shaderc_env_version_vulkan_1_2)
            shaderc_compile_options_set_target_spirv(options, shaderc_spirv_version_1_5)
            shaderc_compile_options_set_suppress_warnings(options)
            _options = options
            _compiler = shaderc_compiler_initialize()
    PyThread_release_lock(_start_lock)
    return _compiler != NULL


def compile_glsl(str source not None, str name not None):
    """Compile a GLSL compute shader to SPIR-V 1.5 for Vulkan 1.2, without optimisation.

    Parameters
    ----------
    source : str
        The text of the shader; its entry point is ``main``.
    name : str
        Stands for a file name in messages.

    Returns
    -------
    bytes
        SPIR-V words, little-endian.

    Raises
    ------
    CompileError
        If the compiler refuses the source; ``log`` holds its messages.
    """
    cdef bytes text = source.encode()
    cdef bytes label = name.encode()
    cdef const char* text_chars = text
    cdef const char* label_chars = label
    cdef size_t text_bytes = <size_t>len(text)
    cdef shaderc_compilation_result_t result = NULL
    cdef int ready
    if b"\0" in text or b"\0" in label:
        raise CompileError(f"Expected GLSL text without null characters, got one in {name!r}", source=source)
    if text_bytes > MAX_SOURCE_BYTES:
        raise CompileError(f"Expected at most {MAX_SOURCE_BYTES} bytes of GLSL in {name!r}, got {text_bytes}",
                           source=source)
    with nogil:
        ready = _start()
        if ready:
            result = shaderc_compile_into_spv(_compiler, text_chars, text_bytes, shaderc_glsl_compute_shader,
                                              label_chars, b"main", _options)
    if result == NULL:
        raise MemoryError("The GLSL compiler could not be started")
    try:
        if shaderc_result_get_compilation_status(result) != shaderc_compilation_status_success:
            log = (<bytes>shaderc_result_get_error_message(result)).decode(errors="replace").strip()
            first = next((line for line in log.splitlines() if "error" in line), log[:200])
            raise CompileError(f"The GLSL compiler refused {name!r}: {first}", source=source, log=log)
        return PyBytes_FromStringAndSize(shaderc_result_get_bytes(result),
                                         <Py_ssize_t>shaderc_result_get_length(result))
    finally:
        shaderc_result_release(result)


def version():
    """Return the SPIR-V version and revision that the linked compiler knows, such as ``"SPIR-V 1.6 revision 1"``."""
    cdef unsigned int number = 0
    cdef unsigned int revision = 0
    shaderc_get_spv_version(&number, &revision)
    return f"SPIR-V {(number >> 16) & 0xFF}.{(number >> 8) & 0xFF} revision {revision}"
