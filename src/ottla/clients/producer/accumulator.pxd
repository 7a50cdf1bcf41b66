# C types for accumulator.py (Cython's augmenting file): the logic is in the .py file.
import cython

from ottla.clients.producer.batches cimport Delivery, PartitionQueue, ProducerBatch, delivery_of


@cython.final
cdef class Topic:
    cdef public object name
    cdef public list queues
    cdef public PartitionQueue sticky
    cdef public long long count
    cdef public object version


cdef class Accumulator:
    cdef public object lock
    cdef public long long batch_size
    cdef public long long growth_limit
    cdef public long long max_request_size
    cdef public long long buffer_memory
    cdef public long long used_bytes
    cdef public long long now_ms
    cdef public long long flushing
    cdef public bint closing
    cdef public dict active
    cdef public dict unfinished
    cdef public object wake
    cdef public object wall_ns
    cdef public object to_key
    cdef public object to_value
    cdef public object failures
    cdef object _metadata
    cdef object _rng
    cdef object _owner
    cdef bint _ignore_keys
    cdef bint _adaptive
    cdef object _partitioner
    cdef object _availability_ms
    cdef object _linger_ms
    cdef dict _topics

    @cython.locals(
        size=cython.longlong, grown=cython.longlong, now_ns=cython.longlong, state=Topic,
        queue=PartitionQueue, batch=ProducerBatch, records=list, sticky=cython.bint,
        raw=bytes,
    )
    cpdef Delivery append(
        self, object topic, object value, object key, object partition, object timestamp_ms,
        object headers=*,
    )

    @cython.locals(index=cython.Py_ssize_t, largest=cython.longlong)
    cpdef object encoded(self, object topic, object values)

    @cython.locals(
        size=cython.longlong, end=cython.Py_ssize_t, count=cython.longlong, state=Topic,
        batch=ProducerBatch,
    )
    cpdef Py_ssize_t append_many(
        self, object topic, object values, Py_ssize_t start, object deliveries
    ) except -1

    @cython.locals(batch=ProducerBatch, more=cython.longlong)
    cdef ProducerBatch _make_room(self, PartitionQueue queue, long long size)

    cdef object _now_ms(self)
    cdef PartitionQueue _explicit(self, Topic state, object partition, object key)
    cdef PartitionQueue _next_sticky(self, Topic state)
    cdef Topic _refresh(self, object topic)
    cdef ProducerBatch _open(self, PartitionQueue queue, long long size)


@cython.locals(
    room=cython.longlong, size=cython.longlong, index=cython.Py_ssize_t, records=list,
    before=cython.Py_ssize_t,
)
cdef Py_ssize_t _fill(
    ProducerBatch batch, object values, Py_ssize_t start, object timestamp_ms
) except -1
