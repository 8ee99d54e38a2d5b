//! What librdkafka knows and its Rust client does not hand over: a topic's identity, and whether a
//! record that failed may be in the log. Every `unsafe` of the queue is here.
#![expect(unsafe_code, reason = "the Rust client has no call for a topic's id and a record's fate")]

use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;

/// Whether a record whose delivery failed is surely not in the log.
pub(super) fn surely_not_persisted(message: &BorrowedMessage<'_>) -> bool {
    // SAFETY: the message owns what its pointer points to, and lives as long as this call.
    let status = unsafe { rd::rd_kafka_message_status(message.ptr()) };
    status == rd::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_NOT_PERSISTED
}

/// The id that Kafka gave the topic when it was made, as its own tools print it. `None` when there
/// is no topic of this name. Blocks at most about `timeout`.
pub(super) fn topic_id<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    timeout: Duration,
) -> Result<Option<String>, RDKafkaErrorCode> {
    let name = CString::new(topic).map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let ask = describe(client, &name, timeout_ms)?;
    // SAFETY: the event is alive; what its accessors return belongs to it and lives as long.
    let error = unsafe { rd::rd_kafka_event_error(ask.as_ptr()) };
    check(error)?;
    // SAFETY: as above; a pointer that is null or a count of zero is not read from.
    unsafe {
        let result = rd::rd_kafka_event_DescribeTopics_result(ask.as_ptr());
        if result.is_null() {
            return Err(RDKafkaErrorCode::BadMessage);
        }
        let mut count = 0;
        let topics = rd::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if topics.is_null() || count == 0 {
            return Ok(None);
        }
        let described = *topics;
        match rd::rd_kafka_error_code(rd::rd_kafka_TopicDescription_error(described)) {
            rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART => return Ok(None),
            error => check(error)?,
        }
        let id = rd::rd_kafka_TopicDescription_topic_id(described);
        if id.is_null() {
            return Err(RDKafkaErrorCode::BadMessage);
        }
        let text = rd::rd_kafka_Uuid_base64str(id);
        Ok(Some(CStr::from_ptr(text).to_string_lossy().into_owned()))
    }
}

fn check(error: rd::rd_kafka_resp_err_t) -> Result<(), RDKafkaErrorCode> {
    if error == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR { Ok(()) } else { Err(error.into()) }
}

/// Something that librdkafka made for us, given back when dropped.
struct Owned<T> {
    pointer: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    fn new(pointer: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Result<Self, RDKafkaErrorCode> {
        let pointer = NonNull::new(pointer).ok_or(RDKafkaErrorCode::OperationTimedOut)?;
        Ok(Self { pointer, destroy })
    }

    fn as_ptr(&self) -> *mut T {
        self.pointer.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `destroy` is the call that the library names for `pointer`, which is given back once.
        unsafe { (self.destroy)(self.pointer.as_ptr()) }
    }
}

/// Asks for the description of one topic and waits for the answer.
fn describe<C: ClientContext>(
    client: &Client<C>,
    name: &CStr,
    timeout_ms: i32,
) -> Result<Owned<rd::rd_kafka_event_t>, RDKafkaErrorCode> {
    let handle = client.native_ptr();
    // SAFETY: `handle` is alive while `client` is borrowed. The names' array and the name outlive the
    // call that copies them; collection, options and queue outlive the call that reads them; each is
    // destroyed once, by its own call. Only the event outlives this function, and owns what it holds.
    unsafe {
        let mut names = [name.as_ptr()];
        let topics = rd::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let topics = Owned::new(topics, rd::rd_kafka_TopicCollection_destroy)?;
        let operation = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        let options = rd::rd_kafka_AdminOptions_new(handle, operation);
        let options = Owned::new(options, rd::rd_kafka_AdminOptions_destroy)?;
        check(rd::rd_kafka_AdminOptions_set_request_timeout(
            options.as_ptr(),
            timeout_ms,
            std::ptr::null_mut(),
            0,
        ))?;
        let queue = Owned::new(rd::rd_kafka_queue_new(handle), rd::rd_kafka_queue_destroy)?;
        rd::rd_kafka_DescribeTopics(handle, topics.as_ptr(), options.as_ptr(), queue.as_ptr());
        // The library answers by itself after its timeout; this wait is longer, so it ends first.
        let event = rd::rd_kafka_queue_poll(queue.as_ptr(), timeout_ms.saturating_add(1_000));
        Owned::new(event, rd::rd_kafka_event_destroy)
    }
}
