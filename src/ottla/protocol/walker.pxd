# C types for walker.py (Cython's augmenting file), which contains the logic.
import cython

from ottla cimport native

cdef int SIGNED
cdef int UNSIGNED
cdef int BOOL
cdef int FLOAT64
cdef int UUID
cdef int FIXED_END
cdef int TEXT
cdef int BYTES
cdef int RECORDS
cdef int STRUCT
cdef int CONSTANT
cdef int EMPTY_LIST
cdef int MADE
cdef int LONGEST_TEXT
cdef int _TEXT_SHIFT
cdef int _BYTES_SHIFT
cdef int FIRST_BUFFER_BYTES
cdef object _new_object
cdef object _new_bytes
cdef object _pack_double
cdef object _unpack_double


@cython.final
cdef class Step:
    cdef public int kind
    cdef public object name
    cdef public bint is_array
    cdef public bint nullable
    cdef public bint compact
    cdef public Plan plan
    cdef public object default
    cdef public int default_kind
    cdef public long long smallest
    cdef public int width
    cdef public long long low
    cdef public long long high
    cdef public long long tag


@cython.final
cdef class Plan:
    cdef public object cls
    cdef public list steps
    cdef public list absent
    cdef public list guarded
    cdef public list tagged
    cdef public list every
    cdef public bint flexible
    cdef public int version


cpdef object default_of(Step step)
cdef bint is_default(Step step, object value) except -1

@cython.locals(step=Step)
cdef bint is_default_struct(Plan plan, object message) except -1

cdef bint has_unknown_tags(Plan plan, object message) except -1


@cython.final
cdef class Reader:
    cdef readonly object source
    cdef const unsigned char *data
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t end
    cdef public long long allowance

    cpdef int charge(self, long long elements) except -1

    @cython.locals(start=cython.Py_ssize_t)
    cdef Py_ssize_t need(self, Py_ssize_t size) except -1

    @cython.locals(byte=cython.uint, bits=cython.ulonglong, value=cython.ulonglong, shift=cython.int)
    cpdef Py_ssize_t uvarint(self) except -1

    @cython.locals(start=cython.Py_ssize_t, byte=cython.uint, value=cython.longlong, index=cython.int)
    cdef Py_ssize_t integer(self, int width, bint signed) except? -7


@cython.locals(reader=Reader)
cpdef tuple read(
    Plan plan, object source, Py_ssize_t position, Py_ssize_t end, long long allowance
)

@cython.locals(reader=Reader)
cpdef Reader reader_at(object source, Py_ssize_t position, Py_ssize_t end, long long allowance)

@cython.locals(step=Step, count=cython.longlong)
cdef object read_struct(Reader reader, Plan plan)

@cython.locals(length=cython.longlong)
cpdef object read_field(Reader reader, Step step)

@cython.locals(start=cython.Py_ssize_t)
cdef object read_fixed(Reader reader, Step step)

cdef int charge_run(Reader reader, int kind, Py_ssize_t length) except -1

cpdef Py_ssize_t read_length(Reader reader, bint compact, int width) except? -7

@cython.locals(start=cython.Py_ssize_t)
cdef object read_run(Reader reader, int kind, Py_ssize_t length)

cpdef object null_of(Step step)
cpdef object too_many(Step step)
cdef object read_single_struct(Reader reader, Step step)

@cython.locals(length=cython.longlong, items=list)
cdef object read_array(Reader reader, Step step)

cpdef int read_items(Reader reader, Step step, list items, long long count) except -1

@cython.locals(size=cython.longlong)
cdef object read_element(Reader reader, Step step)

@cython.locals(tag=cython.longlong, size=cython.longlong, start=cython.Py_ssize_t, step=Step, unknown=list)
cpdef object read_tags(Reader reader, Plan plan, object message, long long count)

@cython.locals(step=Step)
cdef Step step_of_tag(Plan plan, long long tag)


@cython.final
cdef class Writer:
    cdef bytearray buffer
    cdef unsigned char *raw
    cdef Py_ssize_t room
    cdef Py_ssize_t size
    cdef list out

    @cython.locals(start=cython.Py_ssize_t)
    cdef Py_ssize_t need(self, Py_ssize_t size) except -1

    @cython.locals(start=cython.Py_ssize_t)
    cdef int byte(self, unsigned char value) except -1

    @cython.locals(start=cython.Py_ssize_t, index=cython.int)
    cdef int integer(self, long long value, int width) except -1

    cdef int uvarint(self, unsigned long long value) except -1

    @cython.locals(start=cython.Py_ssize_t, index=cython.Py_ssize_t, raw="const unsigned char *")
    cdef int run(self, object data, Py_ssize_t size) except -1

    cdef int flush(self) except -1

    @cython.locals(size=cython.Py_ssize_t)
    cdef bytes frame(self, long long following_bytes)


@cython.locals(writer=Writer)
cpdef Writer writer_into(list out)

@cython.locals(writer=Writer)
cpdef int write(Plan plan, object message, list out) except -1

@cython.locals(step=Step)
cdef int write_struct(Writer writer, Plan plan, object message) except -1

@cython.locals(step=Step, scratch=Writer)
cdef int refuse(Plan plan, object message, Step lost) except -1

@cython.locals(step=Step)
cdef bint is_untagged(Plan plan, object message) except -1

cdef int write_field(Writer writer, Step step, object value) except -1
cdef int write_null(Writer writer, Step step) except -1

@cython.locals(number=cython.longlong)
cdef int write_fixed(Writer writer, Step step, object value) except -1

cdef int write_length(Writer writer, Py_ssize_t length, bint compact, int width) except -1

@cython.locals(data=bytes)
cdef int write_run(Writer writer, Step step, object value) except -1

cdef int write_records(Writer writer, Step step, object value) except -1
cdef Py_ssize_t size_of(object parts) except -1
cdef int write_array(Writer writer, Step step, object value) except -1

@cython.locals(step=Step, parts=list, inner=Writer, found=dict, tag=cython.longlong)
cdef int write_tags(Writer writer, Plan plan, object message) except -1
