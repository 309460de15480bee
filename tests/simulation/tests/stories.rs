//! Histories that once broke an invariant, each by the name of its story: what random histories found, made small. `make simulate
//! ARGS="--seed N"` prints such scripts.

mod scenes;

use simulation::history::run;
use simulation::script::{parse, script};

macro_rules! stories {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            let text = include_str!(concat!("stories/", stringify!($name), ".txt"));
            let plan = parse(text).expect(text);
            let outcome = run(&plan, false);
            assert!(outcome.steps > plan.steps.len() as u64, "nothing was asked");
            assert!(outcome.violations.is_empty(), "{}", script(&plan, &outcome));
        })+

        const STORIES: &[&str] = &[$(stringify!($name)),+];
    };
}

stories! {
    what_a_bundle_drops_late_is_tried_anew_by_the_one_that_waits_for_it
    what_helm_has_deployed_stays_where_an_attempt_above_it_is_labelled_as_removed
    a_first_good_revision_goes_while_the_next_is_half_removed
    a_good_revision_goes_where_a_tenant_says_that_the_half_removed_one_is_good
    what_was_corrected_below_a_forged_record_stays_where_another_bundle_takes_the_release
    what_another_bundle_tried_below_a_forged_record_stays_where_the_release_is_taken_over
    a_bundle_that_was_back_while_its_removal_was_proven_is_missed_anew
    a_release_in_which_helm_went_back_to_a_bundles_attempt_goes_with_the_bundle
    what_was_taken_goes_though_a_lost_bundle_had_tried_to_have_its_release
    what_was_taken_from_a_lost_bundle_stays_where_the_one_that_took_it_moves
    what_an_attempt_brought_below_a_forged_record_goes_with_the_next_version
    a_takeover_from_the_removal_of_a_failed_upgrade_takes_what_the_last_good_one_has
    a_status_that_a_restore_wrote_over_beside_a_patch_is_written_anew
    what_an_attempt_finds_of_a_release_that_is_labelled_as_removed_goes_with_the_next
    a_deploy_that_waited_for_its_chart_is_of_what_was_wanted_before
    what_helm_has_in_a_release_goes_with_the_upgrade_that_its_bundle_was_at_as_it_left
    what_a_person_makes_while_a_hook_of_an_upgrade_runs_is_kept
    a_deploy_that_waits_keeps_the_back_off_of_another_hook
    what_a_helm_client_made_above_the_highest_number_goes_as_that_of_attempts
    what_is_let_go_while_upstream_cannot_be_reached_goes_though_it_was_back_meanwhile
    what_is_deployed_of_a_bundle_that_a_restore_took_meanwhile_is_held
    a_takeover_from_a_removal_that_has_begun_takes_what_that_has_left
    what_lies_below_a_forged_record_stays_where_its_bundle_gave_the_release_away_and_gets_it_back
    what_a_tenant_wrote_over_the_go_agents_last_record_stands_for_the_last_good_one
    an_undo_below_which_a_helm_client_has_deployed_takes_what_an_attempt_before_that_made
    a_removal_that_another_bundle_waits_for_is_finished_below_a_helm_clients_revision
    what_an_agent_cut_off_from_upstream_has_not_heard_of_is_not_what_it_deploys
    what_a_helm_client_wrote_under_a_known_number_is_pruned_below_a_forged_one
    an_upgrade_that_a_tenant_labels_as_over_goes_on
    an_upgrade_takes_what_another_bundle_makes_anew_in_that_very_moment
    a_removal_that_failed_is_over_once_its_bundle_is_deployed_above_a_forged_number
    what_an_attempt_brought_stays_where_its_record_is_pruned_before_it_is_withdrawn
    what_lies_below_a_forged_record_stays_where_a_helm_client_goes_back
    a_deploy_that_a_tenant_labels_as_over_runs_its_hooks_again
    a_helm_client_that_goes_on_from_an_attempt_at_the_last_moment_loses_what_that_made
    what_a_helm_client_passes_over_that_a_tenant_labelled_otherwise_stays
    what_a_bundle_makes_again_in_an_attempt_at_a_release_it_had_stays
    what_an_attempt_brought_stays_where_the_history_of_the_next_bundle_has_no_room_for_it
    what_attempts_brought_stays_where_the_go_agent_deploys_the_next_version
    what_an_undo_brings_back_is_written_with_each_try_of_another_bundle
    what_attempts_brought_below_one_that_helm_upgraded_goes_with_the_next_version
    a_late_drop_beside_a_forged_number_is_late_all_the_same
    what_helm_has_above_a_failed_attempt_is_upgraded_from
    what_the_go_agent_deployed_is_corrected_though_a_person_made_it_anew
    an_object_that_goes_before_another_bundle_has_its_kind_listed_is_missed
    a_stripped_object_stays_with_the_bundle_that_took_it
    a_deployment_that_a_person_and_an_autoscaler_fight_over_is_read_each_time
    a_bundle_that_was_back_while_nobody_heard_is_missing_since_before
    a_revision_of_the_go_agent_beside_a_forged_one_is_as_good_as_that
    a_removal_above_a_forged_number_is_not_that_of_the_next_bundle
    what_a_failed_attempt_brought_goes_with_the_deploy_of_a_bundle_that_left
    a_bundle_that_is_deployed_during_the_rest_failed_before
    a_hook_whose_finalizer_goes_late_is_waited_for_with_each_try
    a_removal_that_has_begun_ends_though_its_bundle_was_back_for_a_moment
    a_helm_client_that_may_write_no_record_installs_nothing
    a_deploy_that_takes_a_finalizer_off_ends_somebodys_deletion
    what_a_failed_attempt_brought_goes_before_the_next_deploy_begins
    a_restore_that_versions_do_not_show_takes_a_copy_with_its_bundle
    an_autoscaler_whose_load_settles_lets_its_bundle_rest
    what_goes_with_its_definition_under_an_upgrade_is_missing
    what_goes_with_its_definition_is_missing
    what_a_lost_bundle_tried_to_deploy_goes_with_the_release_of_another
    a_bundle_that_is_at_a_release_is_not_overtaken_by_a_copy
    a_heartbeat_that_the_controller_sets_back_is_no_restore
    an_import_is_no_restore
    an_upgrade_ends_where_a_helm_client_has_gone_back
    a_correction_below_an_upgrade_that_waits_for_its_hook_is_no_part_of_it
    what_was_there_before_the_first_attempt_stays_though_that_was_cut_off
    what_another_agent_deployed_outlives_a_label_that_somebody_forged
    a_record_that_was_read_for_whose_it_is_may_be_deleted
    a_release_that_was_gone_back_to_goes_with_the_bundle_that_has_it
    a_release_goes_with_the_bundle_that_had_it_though_another_wants_it_by_then
    pruning_after_a_local_restore_keeps_what_may_have_been_good
    a_release_whose_removal_failed_is_deployed_and_takes_away_an_attempt_before_it
    what_a_spec_three_changes_ago_may_take_is_taken
    what_fails_over_half_a_removal_is_not_installed
    what_a_helm_release_had_stays_though_somebody_says_it_was_removed
    a_record_without_labels_under_an_announced_number_is_replaced
    a_good_revision_whose_removal_has_begun_is_one_to_go_back_to
    a_bundle_that_comes_back_half_removed_is_deployed
    a_release_that_its_bundle_goes_back_to_half_removed_is_deployed_before_the_other_goes
    a_deploy_that_a_restored_cluster_has_under_way_is_finished
    a_deploy_that_a_restored_cluster_has_under_way_is_finished_once_its_content_is_back
    a_deploy_that_a_restored_cluster_has_under_way_is_finished_after_a_refusal_and_a_kill
    a_removal_is_held_no_longer_though_its_end_could_not_be_noted
    a_watch_that_a_restored_upstream_tells_nothing_begins_anew
    copies_come_back_with_a_namespace_that_another_bundle_made_meanwhile
    what_a_failed_upgrade_brought_goes_though_the_next_one_cannot_begin
    a_bundle_of_five_objects_that_fails_asks_for_each
    an_atomic_takeover_that_fails_writes_twice_with_each_try
    what_a_failed_install_left_goes_with_the_go_agents_next_version
    two_bundles_and_a_controller_that_fight_for_an_object_rest
    a_good_revision_that_a_tenant_replaces_meanwhile_is_lost
    an_upgrade_writes_once_more_what_is_taken_meanwhile
    bundles_that_vanished_unseen_and_came_back_are_few
    a_good_revision_stays_whatever_its_label_says
    a_namespace_that_goes_during_a_deploy_gets_its_labels_again
    what_an_attempt_over_a_helm_revision_left_stays_until_the_owner_is_deployed
    what_an_attempt_beside_a_helm_revision_left_goes_with_the_owners_next_version
    a_hook_runs_again_for_the_record_that_replaces_a_deleted_one
    what_a_failed_install_left_goes_though_somebody_says_it_was_superseded
    what_a_failed_install_left_goes_though_a_later_one_failed_that_somebody_labelled
    a_restored_status_that_names_a_number_given_again_is_not_believed
    a_restored_status_of_a_release_that_was_installed_anew_is_not_believed
    what_was_corrected_below_a_helm_revision_stays_with_the_go_agent
    what_was_corrected_below_a_helm_revision_stays_with_the_bundle_that_takes_over
    a_restored_ledger_is_noticed_with_its_next_write
    a_restored_record_outlives_the_first_deploy_after_the_restore
    a_slow_deploy_ends_as_it_began
    what_a_failed_upgrade_left_goes_though_somebody_says_it_was_superseded
    a_helm_client_keeps_the_number_of_a_record_that_was_deleted
    what_vanishes_with_the_agents_own_bundle_stays_after_a_restore_without_it
    what_vanished_stays_though_the_agents_own_bundle_is_back_first
    an_object_of_the_go_agents_is_marked_again
    a_hook_makes_way_for_that_of_another_release
    a_copy_that_comes_after_its_source_changed_is_no_change
    a_copy_that_a_restore_puts_back_during_a_deploy_is_written_again
    a_takeover_of_which_a_hook_is_refused_waits_again
    a_hook_runs_once_though_the_clock_is_set_back
    an_object_that_its_new_owner_has_read_is_missed_by_the_former_one
    a_correction_leaves_what_another_bundle_took
    a_changed_copy_is_rolled_out_though_requests_fail
    bundles_of_a_namespace_keep_their_labels
    a_failing_atomic_upgrade_does_not_flap
    a_failing_atomic_install_does_not_flap
    a_release_two_bundles_want_without_records_causes_no_storm
    a_copy_overwrites_nothing
    a_copy_stays_while_another_bundle_needs_it
    a_deploy_that_cannot_be_recorded_is_not_undone
    a_bundle_that_goes_undeployed_is_forgotten
    a_held_removal_stays_held_when_others_return
    a_restore_is_noticed_though_upstream_was_listed_first
    an_object_that_is_taken_during_a_first_deploy_is_not_taken_back
    a_status_that_a_restore_took_back_is_written_again
    bundles_that_went_together_are_held_while_the_ledger_cannot_be_written
    a_removal_that_is_held_gives_rest
    a_removal_that_cannot_go_on_gives_rest
    an_edited_object_without_labels_is_corrected
    a_takeover_prepares_what_it_takes_with_its_own_account
    a_job_with_the_name_of_a_hook_is_no_run_of_it
    a_hook_of_two_releases_runs_in_each
    a_hook_of_another_bundle_is_no_run_of_this_ones
    a_job_that_ends_after_its_attempt_is_no_run_of_the_next
    a_deploy_that_began_ends_though_its_bundle_is_deleted
    a_deploy_that_began_drops_what_is_wanted_again_since
    a_bundle_of_hooks_alone_misses_its_copies_with_the_next_search
    a_correction_follows_what_the_go_agent_deployed_last
    an_object_that_was_adopted_is_marked_again
    a_copy_goes_though_a_restore_lost_a_bundle_that_never_had_it
    a_bundle_that_is_held_has_its_former_release_too
    a_restored_bundle_is_deployed_whatever_its_status_says
    a_restored_bundle_is_deployed_though_the_credential_changed
    a_takeover_that_fails_again_waits_again
    a_release_that_a_tenant_labels_uninstalled_is_left
    a_removal_below_a_record_that_says_it_was_removed_runs_no_hook
    an_object_kept_by_the_next_spec_outlives_a_move
    a_copy_goes_that_another_bundle_did_not_ask_for_yet
    a_bundle_that_comes_back_finds_its_removal_begun
    the_grace_is_that_of_the_bundle_that_had_the_release
    a_hook_that_somebody_deleted_runs_again
    a_forged_record_makes_no_revision_good
    a_forged_record_that_a_later_revision_closes_is_no_good_one
    a_forced_sync_that_upstream_was_not_told_of_is_not_repeated
    copies_come_back_with_a_namespace_that_went_during_a_deploy
    bundles_that_went_together_are_held_though_their_list_could_not_be_noted
    a_takeover_that_upstream_was_not_told_of_is_not_repeated
    a_helm_client_goes_on_above_a_forged_number
    an_undo_goes_on_though_a_helm_client_deploys
    an_upgrade_drops_what_a_helm_client_had_though_a_record_is_forged
    an_install_that_fails_is_undone_though_its_bundle_is_deleted
    a_release_that_was_taken_over_goes_with_its_history
    a_secret_that_is_taken_back_is_noted_first
    a_job_that_comes_before_the_hook_of_its_name_stays
    what_is_held_goes_by_permission_though_it_was_back_unseen
    a_removal_that_began_ends_though_its_bundle_comes_back
    a_removal_that_began_ends_though_a_restore_brings_its_bundle_back
    a_copy_goes_with_a_bundle_that_lost_its_release
    a_copy_goes_with_a_bundle_that_lost_its_release_before_it_was_deployed
    what_a_failed_install_made_goes_with_its_bundle_though_another_has_the_release
    the_go_agent_drops_what_a_bundle_had_that_lost_its_release
    an_undo_keeps_the_last_good_revision_below_a_forged_one
    an_undo_keeps_what_helm_installed_after_the_records_were_deleted
    an_undo_ends_though_its_bundle_is_atomic_no_more
    a_takeover_above_a_forged_record_leaves_what_that_leaves_out
    a_removal_that_waits_for_a_helm_client_gives_rest
    a_copy_made_before_a_restore_is_noticed_is_left
    what_a_failed_takeover_made_goes_once_its_bundle_has_another_release
    what_an_attempt_left_goes_though_a_record_above_it_is_forged
    an_undo_takes_nothing_of_a_helm_client_though_a_record_is_labelled
    what_an_attempt_left_goes_with_the_next_owner_though_a_record_is_forged
    what_a_correction_brought_back_goes_with_its_bundle_though_helm_upgraded
    what_an_attempt_left_goes_though_a_restore_forgot_of_it
    what_a_restore_forgot_of_is_dropped_by_an_agent_that_starts_anew
    a_try_that_fails_after_a_restore_is_tried_again
    what_a_reverted_attempt_left_goes_though_the_next_try_fails
    what_a_person_strips_of_a_helm_release_that_was_taken_over_is_its_own
    what_another_bundle_made_of_a_missing_object_stays_its_own
    a_version_that_drops_what_it_took_is_late_for_the_next_one
    a_record_that_a_tenant_labelled_to_and_fro_is_as_good_as_before
    a_restore_makes_no_attempt_good_that_a_tenant_labelled
    what_a_bundle_left_is_noted_while_it_has_no_other_release
    a_copy_stays_with_a_bundle_whose_removal_is_held
    the_go_agent_sees_no_record_without_labels
    an_attempt_is_not_withdrawn_from_what_helm_deploys_at_that_moment
    what_another_claimant_left_goes_though_helm_upgraded
    an_attempt_is_withdrawn_after_a_withdrawal_that_was_cut_off
    an_attempt_is_withdrawn_after_a_pruning_that_was_cut_off
    what_attempts_over_a_helm_release_left_goes_with_the_next_version_there
    what_attempts_at_a_helm_release_brought_stays_when_their_bundle_goes
    a_helm_upgrade_during_an_undo_keeps_what_it_has
    a_helm_upgrade_during_a_pruning_keeps_what_it_has
    the_last_good_revision_stays_though_a_tenant_replaces_a_later_one
    the_last_good_revision_stays_though_a_tenant_labels_an_attempt
    a_bundle_that_wants_its_former_release_again_finds_it_going
    an_upgrade_drops_what_helm_had_though_the_cluster_is_restored
    a_restore_from_a_young_backup_is_hidden_by_versions_that_passed
    a_release_is_not_upgraded_that_another_bundle_deployed_since_it_was_free
    a_record_stays_that_is_written_while_the_former_bundle_goes
    what_a_tenant_wrote_in_the_place_of_the_go_agents_revision_is_believed
    what_an_earlier_session_deployed_is_forgotten_with_its_bundle
    what_a_person_lets_through_had_its_grace
    a_record_that_somebody_deletes_under_an_upgrade_ends_it_not_at_once
    an_undone_attempt_of_a_restored_cluster_takes_what_it_brought
    a_hook_that_ended_before_a_restore_makes_way_for_the_upgrade_under_way
    a_hook_that_ended_before_a_restore_is_noted_and_goes_after_it
    a_record_under_a_number_that_was_announced_counts_as_damaged
    a_former_release_goes_to_a_bundle_that_is_listed_last
    a_former_release_stays_until_upstream_is_heard_again
    a_list_that_a_restore_comes_upon_is_made_again
    a_leader_that_was_cut_off_works_no_more
    what_a_forged_record_leaves_out_stays_with_the_go_agent
    what_a_forged_record_leaves_out_outlives_the_bundle_that_took_over
    what_upstream_lost_stays_though_the_cluster_is_restored
    what_upstream_lost_stays_though_the_cluster_is_restored_and_the_agent_dies
}

#[test]
fn every_story_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories");
    let stem = |entry: std::io::Result<std::fs::DirEntry>| -> Option<String> {
        Some(entry.unwrap().path().file_stem()?.to_str()?.to_owned())
    };
    let files = std::fs::read_dir(folder).unwrap().filter_map(stem);
    let not_run: Vec<_> = files
        .filter(|file| !STORIES.contains(&file.as_str()))
        .collect();
    assert!(not_run.is_empty(), "{not_run:?}");
}
