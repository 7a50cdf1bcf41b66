# C types for batches.py (Cython's augmenting file): the logic is in the .py file, only types are here.
import cython


@cython.final
cdef class ProducerBatch:
    cdef public object topic_partition
    cdef public list records
    cdef public object encoded
    cdef public long long encoded_count
    cdef public long long size
    cdef public long long reserved
    cdef public bint full
    cdef public object created_ms
    cdef public object owner
    cdef public object attempts
    cdef public object order
    cdef public object retry_at_ms
    cdef public object producer_id
    cdef public object producer_epoch
    cdef public object base_sequence
    cdef public object payload
    cdef public bint done
    cdef public object base_offset
    cdef public object log_append_time_ms
    cdef public object error
    cdef public object record_errors
    cdef public object callbacks
    cdef public object pending
    cdef public object split_into
    cdef public object asked


@cython.final
@cython.freelist(1024)
cdef class Delivery:
    cdef public ProducerBatch batch
    cdef public long long position


@cython.locals(delivery=Delivery)
cpdef Delivery delivery_of(ProducerBatch batch, long long position)


@cython.final
cdef class PartitionQueue:
    cdef public ProducerBatch open
    cdef public object closed
    cdef public list retries
    cdef public list in_flight
    cdef public object queued_bytes
    cdef public object producer_id
    cdef public object producer_epoch
    cdef public object next_sequence
    cdef public object last_acked_sequence
    cdef public object last_error
    cdef public bint needs_reset
    cdef public object sent_count
    cdef public object unresolved_sequence
    cdef public object topic_partition
