//! What an engine must do, PDU by PDU, whichever engine it is: each scenario gets a function that makes one.

pub mod exchanges;
pub mod losses;

/// Invokes the macro `$each` with every scenario. One that is missing here is dead code.
macro_rules! every_scenario {
    ($each:ident) => {
        $each! {
            exchanges::a_read_is_placed_and_ends_with_the_status_of_its_last_data_in,
            exchanges::a_response_brings_sense_data_and_residuals,
            exchanges::a_write_sends_immediate_unsolicited_and_solicited_data,
            exchanges::commands_wait_for_the_window_and_immediate_ones_do_not,
            exchanges::what_is_not_offloaded_goes_to_software_and_its_status_counts,
            exchanges::a_full_ring_of_raw_pdus_stops_the_stream_until_slots_are_released,
            exchanges::what_breaks_a_rule_stops_the_stream_and_places_nothing,
            exchanges::level_0_stops_at_a_bad_data_digest_and_goes_on_where_software_says,
            exchanges::a_data_segment_above_the_declared_length_is_refused_at_its_header,
            exchanges::closing_a_connection_ends_its_tasks,
            exchanges::a_polynomial_is_exchanged_between_two_pdus,
            exchanges::descriptors_that_cannot_be_executed_are_answered_with_the_reason,
            exchanges::a_connection_of_a_target_is_refused,
            exchanges::the_a_bit_is_answered_with_a_dataack,
            losses::every_lost_group_is_requested_once_after_its_delay,
            losses::what_arrives_within_the_delay_is_not_requested,
            losses::bad_data_digests_in_a_row_are_one_group_and_a_bad_replica_is_another,
            losses::a_lost_status_is_requested_and_acknowledged_only_when_it_is_there,
            losses::exp_data_sn_shows_data_that_was_lost_at_the_end,
            losses::a_lost_r2t_is_requested,
            losses::a_dataack_waits_for_the_data_before_it,
        }
    };
}
