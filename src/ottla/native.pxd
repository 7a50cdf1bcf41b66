# For compiled modules: the functions of native.py as inline C. They cimport the module, not the
# functions, since a compiled module cannot import a C function's name.
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_Check, PyByteArray_FromStringAndSize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcpy

cdef extern from "Python.h":
    ctypedef struct PyBytesObject:
        Py_hash_t ob_shash
    bint PyMemoryView_Check(object)
    Py_buffer *PyMemoryView_GET_BUFFER(object)
    bint PyBuffer_IsContiguous(Py_buffer *, char)
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t size)
    ctypedef struct PyThreadState:
        pass
    PyThreadState *PyEval_SaveThread() noexcept nogil
    void PyEval_RestoreThread(PyThreadState *) noexcept nogil


cdef inline unsigned char *bytes_of(object source) except? NULL:
    cdef Py_buffer *buffer
    if PyMemoryView_Check(source):
        buffer = PyMemoryView_GET_BUFFER(source)
        if buffer.itemsize == 1 and PyBuffer_IsContiguous(buffer, b"C"):
            return <unsigned char *>buffer.buf
    elif PyBytes_Check(source):
        return <unsigned char *>PyBytes_AS_STRING(source)
    elif PyByteArray_Check(source):
        return <unsigned char *>PyByteArray_AS_STRING(source)
    raise TypeError("not contiguous bytes")


cdef inline bint is_readonly(object view) noexcept:
    return PyMemoryView_GET_BUFFER(view).readonly


cdef inline long long int_at(
    const unsigned char *data, Py_ssize_t position, int width
) noexcept nogil:
    cdef unsigned long long value = 0
    cdef int index
    for index in range(width):
        value = (value << 8) | data[position + index]
    if width == 2:
        return <short>value
    return <int>value if width == 4 else <long long>value


cdef inline void put_at(
    unsigned char *data, Py_ssize_t position, int width, long long value
) noexcept nogil:
    cdef int index
    for index in range(width):
        data[position + index] = <unsigned char>(value >> (8 * (width - 1 - index)))


cdef inline void copy_bytes(
    unsigned char *target, Py_ssize_t position, const unsigned char *source, Py_ssize_t start,
    Py_ssize_t size
) noexcept nogil:
    memcpy(target + position, source + start, size)


# Eight bytes in three cycles, where the compiler and the processor have Intel's instruction.
cdef extern from *:
    """
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <string.h>
    __attribute__((target("sse4.2"), unused)) static unsigned int ottla_crc32c(
        const unsigned char *data, Py_ssize_t position, Py_ssize_t end, unsigned int crc) {
      unsigned long long wide = crc, word;
      for (; position + 8 <= end; position += 8) {
        memcpy(&word, data + position, 8);
        wide = __builtin_ia32_crc32di(wide, word);
      }
      crc = (unsigned int)wide;
      for (; position < end; position++) crc = __builtin_ia32_crc32qi(crc, data[position]);
      return crc;
    }
    __attribute__((unused)) static int ottla_has_crc32c(void) {
      return __builtin_cpu_supports("sse4.2");
    }
    #else
    static unsigned int ottla_crc32c(
        const unsigned char *data, Py_ssize_t position, Py_ssize_t end, unsigned int crc) {
      return crc;
    }
    static int ottla_has_crc32c(void) { return 0; }
    #endif
    """
    bint has_crc32c "ottla_has_crc32c"() noexcept nogil
    unsigned int crc32c "ottla_crc32c"(
        const unsigned char *data, Py_ssize_t position, Py_ssize_t end, unsigned int crc
    ) noexcept nogil


cdef inline void *release_interpreter() noexcept nogil:
    return PyEval_SaveThread()


cdef inline void take_interpreter(void *state) noexcept nogil:
    PyEval_RestoreThread(<PyThreadState *>state)


cdef inline str text_at(const unsigned char *data, Py_ssize_t position, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<const char *>data + position, size, b"replace")


cdef inline object new_bytes(
    object kind, const unsigned char *data, Py_ssize_t position, Py_ssize_t size
):
    made = PyType_GenericAlloc(<PyTypeObject *>kind, size)
    memcpy(PyBytes_AS_STRING(made), data + position, size)
    (<PyBytesObject *>made).ob_shash = -1
    return made


cdef inline bytearray new_bytearray(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef inline object new_tuple(object kind, tuple values):
    cdef Py_ssize_t index, size = PyTuple_GET_SIZE(values)
    made = PyType_GenericAlloc(<PyTypeObject *>kind, size)
    for index in range(size):
        value = <object>PyTuple_GET_ITEM(values, index)
        Py_INCREF(value)
        PyTuple_SET_ITEM(made, index, value)
    return made
