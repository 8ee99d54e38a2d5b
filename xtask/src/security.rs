//! The hostile requests that the server must answer as documented, by the ids of the list that
//! they come from, each with the tests that send it.

use std::path::Path;

use anyhow::Result;

use crate::named::{self, Line};

/// Where the tests are: the libraries' own, and these of the server.
const TARGETS: [&str; 18] = [
    "hostile",
    "refusals",
    "slow",
    "orders",
    "purchase",
    "sales",
    "logs",
    "documented",
    "providers",
    "identity",
    "limits",
    "sale_tokens",
    "captchas",
    "strikes",
    "eligibility",
    "blocks",
    "tls",
    "staff_keys",
];

const LINES: &[Line] = &[
    ("J1", "no token", &["only_a_good_access_token_buys"]),
    ("J2", "alg none, no signature", &["gate::jwt::tests::other_algorithms_and_unsigned_tokens_are_refused"]),
    (
        "J3",
        "a public key used as a secret",
        &[
            "gate::jwt::keys::tests::a_public_key_is_no_secret_and_an_algorithm_is_not_the_tokens_choice",
            "public_keys_come_from_files_too_and_are_no_secrets",
        ],
    ),
    (
        "J4",
        "another alg of the family",
        &[
            "gate::jwt::tests::other_algorithms_and_unsigned_tokens_are_refused",
            "gate::jwt::keys::tests::a_public_key_is_no_secret_and_an_algorithm_is_not_the_tokens_choice",
        ],
    ),
    ("J5", "exp past, missing, of a wrong type", &["gate::jwt::tests::times_are_whole_numbers_and_are_kept"]),
    ("J6", "nbf ahead, of a wrong type", &["gate::jwt::tests::times_are_whole_numbers_and_are_kept"]),
    ("J7", "wrong aud or iss", &["gate::jwt::tests::every_claim_must_be_there_and_be_ours"]),
    (
        "J8",
        "another kind of token",
        &["gate::jwt::tests::other_kinds_of_tokens_are_refused", "a_sale_token_is_no_access_token"],
    ),
    (
        "J9",
        "10,000 unknown kids",
        &[
            "ten_thousand_unknown_keys_have_the_set_read_once_in_thirty_seconds",
            "a_provider_that_says_nothing_holds_up_nobody_and_lets_nobody_in",
        ],
    ),
    (
        "J10",
        "kids with a meaning elsewhere",
        &["gate::jwt::keys::tests::a_kid_chooses_among_the_keys_and_nothing_else"],
    ),
    (
        "J11",
        "tokens that say where their key is",
        &[
            "a_token_that_says_where_its_key_is_is_not_believed",
            "gate::jwt::tests::other_kinds_of_tokens_are_refused",
        ],
    ),
    (
        "J12",
        "keys that rotate, providers that fail",
        &["keys_rotate_with_an_overlap", "a_provider_that_fails_or_lies_changes_nothing"],
    ),
    ("J13", "malformed, deep and huge tokens", &["gate::jwt::tests::malformed_tokens_are_refused"]),
    (
        "J14",
        "strange subjects",
        &[
            "gate::jwt::tests::subjects_are_opaque_and_kept_byte_for_byte",
            "users_are_told_apart_byte_for_byte",
        ],
    ),
    ("T1", "a sale token used again", &["a_sale_that_requires_a_token_is_opened_by_one_and_by_nothing_else"]),
    ("T2", "a sale token of another user", &["a_token_of_another_user_sale_or_time_opens_nothing"]),
    (
        "T3",
        "a sale token of another sale or time, spoilt",
        &[
            "a_token_of_another_user_sale_or_time_opens_nothing",
            "gate::sale_token::tests::no_bit_of_a_token_can_be_changed",
        ],
    ),
    (
        "T4",
        "a captcha's answer used again, another's, over",
        &[
            "a_captcha_gives_one_token_to_who_solved_it_in_time",
            "a_judged_answer_gives_one_token_to_who_solved_it_in_its_sale_and_on_its_host",
            "hcaptcha_is_asked_with_the_site_key_and_counts_an_answer_once_here",
            "without_a_good_verdict_there_is_no_token",
            "gate::captcha::tests::a_mark_is_one_users_in_one_sale_and_no_signature",
        ],
    ),
    ("T5", "one sale token on 100 connections", &["one_token_on_a_hundred_connections_is_one_order"]),
    ("O1", "read another's order", &["an_order_is_its_owners_alone"]),
    ("O2", "a body that names user and price", &["what_the_body_says_beside_the_wish_is_ignored"]),
    (
        "O3",
        "pay or cancel another's order",
        &["an_order_is_its_owners_alone", "a_payment_begins_for_its_owner_alone_and_while_it_may"],
    ),
    (
        "O4",
        "order ids that are none",
        &[
            "every_error_beside_the_purchase_has_the_same_form",
            "a_path_that_is_not_text_is_refused_like_everything_else",
        ],
    ),
    ("R1", "1,000 invented addresses", &["a_thousand_invented_addresses_are_one_client"]),
    (
        "R2",
        "a stranger's X-Forwarded-For",
        &[
            "a_thousand_invented_addresses_are_one_client",
            "gate::address::tests::a_stranger_is_not_asked_where_he_comes_from",
            "a_proxy_of_ours_says_where_somebody_is_and_nobody_else_does",
        ],
    ),
    (
        "R3",
        "a proxy's X-Forwarded-For",
        &[
            "a_proxy_of_ours_is_believed_and_what_its_client_says_is_not",
            "gate::address::tests::behind_our_proxies_the_last_foreign_hop_counts",
            "gate::address::tests::what_a_proxy_wrote_and_nobody_can_read_counts_as_the_proxy",
        ],
    ),
    (
        "R4",
        "two of them, Forwarded, X-Real-IP",
        &["a_proxy_of_ours_is_believed_and_what_its_client_says_is_not"],
    ),
    (
        "R5",
        "65,536 addresses of one /64",
        &["gate::limits::tests::one_address_has_one_counter_in_all_its_forms"],
    ),
    (
        "R6",
        "an IPv4 address in both forms",
        &[
            "gate::limits::tests::one_address_has_one_counter_in_all_its_forms",
            "gate::block_list::tests::an_address_is_looked_up_in_all_its_forms",
            "who_is_blocked_buys_nothing_until_that_is_lifted",
            "a_proxy_of_ours_is_believed_and_what_its_client_says_is_not",
        ],
    ),
    (
        "R7",
        "a million other addresses",
        &["gate::limits::tests::a_million_others_drive_nobody_out_and_hurt_nobody"],
    ),
    (
        "R9",
        "a clock that stands or goes back",
        &["gate::limits::tests::a_refused_request_is_not_counted_and_a_clock_that_stands_forgives_nothing"],
    ),
    (
        "R10",
        "what a 429 says",
        &["a_user_who_clicks_too_often_is_told_how_long_to_wait", "who_asks_for_orders_too_often_waits_too"],
    ),
    (
        "H1",
        "slow heads",
        &[
            "a_head_that_comes_too_slowly_is_not_waited_for",
            "a_second_head_that_comes_too_slowly_is_not_waited_for",
            "who_is_slow_or_silent_does_not_hold_the_staff_out",
            "what_is_no_handshake_is_closed_within_the_time_for_a_head",
        ],
    ),
    ("H2", "slow bodies", &["a_body_that_comes_too_slowly_is_not_waited_for"]),
    ("H3", "bodies beyond the bound", &["a_body_beyond_four_kilobytes_is_not_read"]),
    ("H4", "heads beyond the bound", &["a_head_has_its_bounds", "a_header_of_nine_kilobytes_is_too_large"]),
    (
        "H5",
        "framing in doubt",
        &[
            "a_length_that_is_in_doubt_hides_no_second_request",
            "lines_that_end_in_a_bare_line_feed_hide_no_second_request",
            "one_bare_line_feed_in_a_head_hides_no_second_request",
            "a_head_that_cannot_be_read_is_told_so",
        ],
    ),
    (
        "H6",
        "hosts in doubt",
        &["a_request_names_its_host_once_and_well", "an_absolute_address_of_another_host_is_refused"],
    ),
    (
        "H7",
        "other methods and paths",
        &["a_method_that_is_not_allowed_is_told_which_are", "a_purchase_takes_only_a_post"],
    ),
    ("H8", "bodies that are no JSON", &["a_body_that_is_no_json_is_refused_by_its_kind"]),
    (
        "H9",
        "10,000 pipelined requests",
        &["ten_thousand_pipelined_requests_are_answered_in_order_or_dropped_and_hurt_nobody"],
    ),
    (
        "H10",
        "HTTP/2, which is not spoken",
        &["what_is_not_http_is_closed", "buyers_and_staff_are_served_by_both_versions_and_by_http_1_alone"],
    ),
    (
        "H11",
        "connections beyond the cap",
        &[
            "a_connection_beyond_the_cap_is_refused_quickly_and_the_others_are_served",
            "one_address_has_its_own_cap_over_all_cores",
            "a_handshake_takes_a_place_from_its_first_moment",
        ],
    ),
    (
        "H12",
        "hanging up after the click",
        &[
            "a_buyer_who_hangs_up_right_after_the_click_finds_the_order",
            "a_click_that_was_hung_up_on_is_an_order_or_nothing",
            "a_buyer_who_hangs_up_without_a_word_has_clicked_all_the_same",
        ],
    ),
    (
        "I1s",
        "item ids with a meaning elsewhere",
        &["item_ids_that_would_mean_something_elsewhere_mean_nothing_here"],
    ),
    ("I2s", "forged log lines", &["what_is_sent_cannot_forge_a_line"]),
    ("I3s", "garbage as traceparent", &["purchase::tests::only_a_well_formed_traceparent_travels_on"]),
    ("I4s", "paths as metric labels", &["scanned_paths_make_no_series"]),
    (
        "W1",
        "webhooks that prove nothing",
        &["webhooks::a_webhook_that_proves_nothing_is_refused_and_changes_nothing"],
    ),
    (
        "W2",
        "one webhook 100 times at once",
        &["webhooks::the_same_webhook_a_hundred_times_at_once_counts_once"],
    ),
    (
        "W3",
        "two secrets, and one removed",
        &["webhooks::every_configured_secret_signs_and_a_removed_one_does_not"],
    ),
    (
        "W4",
        "wrong amount, currency, order, time",
        &["webhooks::a_webhook_that_does_not_fit_its_order_is_kept_and_changes_nothing"],
    ),
    (
        "W5",
        "failed after succeeded",
        &["webhooks::what_contradicts_a_payment_changes_nothing_and_what_gives_it_back_does"],
    ),
    ("A1s", "staff routes in public", &["the_public_listener_knows_no_staff"]),
    (
        "A2s",
        "staff routes without a role, too late, or again",
        &[
            "a_change_sent_again_is_answered_as_it_was_and_not_done_again",
            "what_was_begun_and_has_no_answer_is_not_done_again_by_its_key",
            "a_change_is_done_once_however_many_send_it_and_whoever_hangs_up",
            "viewers_read_operators_run_sales_and_strangers_get_nothing",
            "a_token_of_the_staff_ends_in_time_and_is_kept_as_a_hash",
        ],
    ),
    (
        "A3s",
        "restocks below what is sold, two preheats",
        &["a_restock_is_a_difference_and_counts_once", "preheats_at_once_agree"],
    ),
    ("A4s", "staff routes from another origin", &["no_page_of_another_origin_may_speak_for_the_staff"]),
    (
        "D3s",
        "one account, 1,000 clicks at once",
        &["one_account_with_a_thousand_clicks_at_once_has_one_order"],
    ),
    (
        "D1s",
        "accounts that hold and never pay",
        &["who_never_pays_holds_the_stock_for_two_rounds_and_not_for_a_third"],
    ),
    ("D2s", "polling for the second of a return", &["ledger::sqlite::tests::units_return_at_random_moments"]),
    (
        "S1",
        "secrets in the output of a run",
        &[
            "no_output_of_a_run_has_a_secret",
            "a_secret_that_the_captchas_provider_refuses_is_told_as_an_error_and_not_shown",
        ],
    ),
    (
        "S4",
        "weak secrets, files for everybody",
        &[
            "gate::jwt::keys::tests::weak_secrets_are_refused",
            "config::tests::a_secret_may_stand_in_a_file_named_by_every_layer",
            "config::tests::one_issuer_signs_and_public_keys_are_not_mixed_with_secrets",
            "config::tests::limits_and_proxies_are_networks_that_make_sense",
            "config::tests::a_captcha_of_others_has_both_its_keys_and_is_asked_in_private",
            "admin::tokens::tests::short_open_and_malformed_files_are_refused",
            "tls::tests::files_that_cannot_be_used_are_refused_with_what_to_do_and_without_what_is_in_them",
            "a_server_does_not_start_with_a_key_that_does_not_fit_or_that_everybody_can_read",
        ],
    ),
];

/// What no line of [`LINES`] shows: by another area, or not at all.
const NOT_HERE: &[(&str, &str)] = &[
    (
        "J9",
        "in part: the others' latency is a figure (`cargo xtask bench J9`); where the sender has limits, the last hear 429",
    ),
    (
        "T4",
        "in part: ALTCHA's answer counts once at each gateway; at another one it brings its user another token. hCaptcha's is bound to nobody, and counts once by its provider's word",
    ),
    ("R7", "in part: a million addresses, not ten; the tables have a fixed size whoever comes"),
    ("R8", "does not apply: each gateway counts by itself, in memory, so no limit can be away"),
    ("S2", "`cargo xtask test conformance`: a_user_with_the_documented_rights_can_do_no_harm"),
    ("S3", "`cargo xtask test conformance`: roles_can_do_their_work_and_no_more"),
    ("S5", "`cargo xtask test tidy`: cargo-deny, where its database can be reached; no SBOM yet"),
    ("S6", "not built: a container of the program"),
    (
        "D1s",
        "in part: twenty accounts, not 10,000; the alarm is the figure doorbuster_barred_users in round 2",
    ),
    ("D3s", "in part: at one gateway with two cores; F32 has many gateways and users"),
    ("P1", "not built: erasure of a user"),
];

/// Runs the tests of every line, prints each with its result, and says whether all passed.
///
/// # Errors
/// cargo cannot be started.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let passed = named::run(root, LINES, &TARGETS, 43)?;
    println!("not in this list:");
    for (id, why) in NOT_HERE {
        println!("{id:<8}{why}");
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_stands_once() {
        let mut ids: Vec<&str> = LINES.iter().map(|line| line.0).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), LINES.len());
    }
}
