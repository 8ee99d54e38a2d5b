//! Which words of a provider's a person should hear of.

use doorbuster_engine::ledger::{PayOutcome, ProviderEvent, ReceiveOutcome};

/// What a person should know of an event that is not simply a payment.
pub(crate) fn tell(event: &ProviderEvent, outcome: ReceiveOutcome) {
    let it = &event.payment;
    let said = "a provider's event is stored, and changes nothing that it should not";
    macro_rules! line {
        ($level:ident, $said:expr) => {
            tracing::$level!(
                order.id = %it.order,
                provider = it.provider,
                event.id = it.event_id,
                payment.id = it.payment_id,
                outcome = outcome.as_str(),
                "{}",
                $said
            )
        };
    }
    match outcome {
        // It says that one order's money is another's: a fault of the provider's or of ours.
        ReceiveOutcome::OtherOrder => line!(error, said),
        ReceiveOutcome::RefundFailed => line!(
            error,
            "a refund did not arrive: the staff has to give the money back another way (`doorbuster refund list`)"
        ),
        ReceiveOutcome::Decided(PayOutcome::RefundDue | PayOutcome::AmountMismatch | PayOutcome::NoOrder)
        | ReceiveOutcome::Contradiction
        | ReceiveOutcome::UnknownAttempt
        | ReceiveOutcome::Refunded
        | ReceiveOutcome::PartlyRefunded => line!(warn, said),
        ReceiveOutcome::Decided(
            PayOutcome::Paid | PayOutcome::Duplicate | PayOutcome::Late | PayOutcome::Refunded,
        )
        | ReceiveOutcome::Failed => line!(debug, said),
    }
}
