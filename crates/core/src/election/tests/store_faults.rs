//! A store that loses data, or appears to (I3, I11).

use super::harness::*;
use crate::election::*;

#[test]
fn a_reply_of_a_deposed_primary_alone_is_not_believed() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::Watch(Watch::Unclear));
    let (read, _) = a.take_call();
    a.reply(at(1), read, Outcome::Applied(Found::Missing));
    assert!(a.leads(at(1)));
    let (confirm, operation) = a.take_call();
    assert_eq!(operation, Operation::Read { confirm: true });
    let outcome = stored.apply(&a.identity, &operation);
    a.reply(at(1), confirm, outcome);
    a.run(at(30), &mut stored);
    assert!(a.leads(at(30)));
    assert_eq!(a.notices, []);
}

#[test]
fn i3_a_deleted_document_makes_the_leader_step_down_and_its_tokens_go_on() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.document = None;
    a.input(at(1), Input::Watch(Watch::Unclear));
    a.serve(at(1), &mut stored);
    assert!(!a.leads(at(1)));
    assert_eq!(a.reason(), Some(Reason::StoreRolledBack));
    let notice = Notice::StoreRolledBack {
        seen: token(1),
        found: None,
        wait: seconds(24),
    };
    assert_eq!(a.notices, [notice]);
    a.run(at(25) - millis(1), &mut stored);
    assert_eq!(
        a.count("create"),
        1,
        "no writes while others may still believe"
    );
    a.run(at(26), &mut stored);
    assert_eq!((a.leads(at(26)), a.token()), (true, token(2)));
}

#[test]
fn i3_a_document_that_was_foreign_for_a_while_and_is_missing_then_was_lost() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = follower("b", at(0), &mut stored);
    b.input(at(1), Input::Watch(Watch::Unclear));
    let (read, _) = b.take_call();
    b.reply(
        at(1),
        read,
        Outcome::Applied(Found::Foreign("newer".to_owned())),
    );
    stored.document = None;
    b.input(at(2), Input::Watch(Watch::Unclear));
    b.serve(at(2), &mut stored);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    b.run(at(27), &mut stored);
    assert_eq!(b.token(), token(2));
}

#[test]
fn i3_a_restored_document_makes_the_leader_step_down_and_its_tokens_go_on() {
    let (mut a, mut stored) = leader("a", at(0));
    let old = stored.clone();
    for _ in 0..3 {
        a.input(a.election.status_time() + seconds(1), Input::StepDown);
        a.input(a.election.status_time(), Input::Demoted { shown: true });
        a.serve(a.election.status_time(), &mut stored);
        a.run(a.election.status_time() + seconds(24), &mut stored);
    }
    assert_eq!(a.token(), token(4));
    stored = old;
    let now = a.election.status_time();
    a.run(now + seconds(4), &mut stored);
    assert_ne!(a.role(), Role::Leader);
    assert_eq!(a.reason(), Some(Reason::StoreRolledBack));
    a.run(now + seconds(60), &mut stored);
    assert_eq!(a.token(), token(5));
}

/// Returns settings with a declared lease duration of 100 s.
fn long() -> Tunables {
    let settings = TimingSettings {
        lease_duration: seconds(100),
        ..TimingSettings::default()
    };
    Tunables {
        timings: Timings::new(settings).expect("legal"),
        ..tunables()
    }
}

#[test]
fn a_follower_waits_for_the_longest_duration_it_has_seen() {
    let (_, mut stored) = leader_with("a", at(0), long());
    let mut b = follower("b", at(0), &mut stored);
    stored.document = None;
    b.input(at(1), Input::Watch(Watch::Unclear));
    b.serve(at(1), &mut stored);
    b.run(at(101) - millis(1), &mut stored);
    assert_eq!(b.count("create"), 0);
    b.run(at(102), &mut stored);
    assert_eq!(b.token(), token(2));
}

#[test]
fn the_status_directorys_memory_tells_that_the_store_went_back() {
    let mut stored = Stored::default();
    let mut a = Node::start_with("a", at(0), tunables(), token(40), None);
    a.serve(at(0), &mut stored);
    assert_eq!(a.reason(), Some(Reason::StoreRolledBack));
    a.run(at(25), &mut stored);
    assert_eq!(a.token(), token(41));
}

/// The leader continues until its own deadline. A process that knows its token only from the
/// directory must also know how long the leader may continue.
#[test]
fn i1_a_restarted_follower_waits_for_the_longest_duration_of_its_life_before() {
    let (_, mut stored) = leader_with("a", at(0), long());
    let b = follower("b", at(0), &mut stored);
    stored.document = None;
    let mut b = b.successor(at(1));
    b.serve(at(1), &mut stored);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    b.run(at(101) - millis(1), &mut stored);
    assert_eq!(b.count("create"), 0);
    b.run(at(102), &mut stored);
    assert_eq!(b.token(), token(2));
}

/// The opening of a stream triggers a second read, which overtakes the first. Only the reply to the
/// first shows the leader.
#[test]
fn i1_what_only_an_overtaken_read_showed_is_known_to_have_been_there() {
    let (_, stored) = leader("a", at(0));
    let mut b = Node::start("b", at(0));
    let (first, _) = b.take_call();
    b.input(at(0), Input::Watch(Watch::Opened));
    let (second, _) = b.take_call();
    let shown = Found::Lease(stored.lease().clone());
    b.reply(at(0), first, Outcome::Applied(shown));
    let mut gone = Stored::default();
    b.reply(at(1), second, Outcome::Applied(Found::Missing));
    b.serve(at(1), &mut gone);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    b.run(at(25) - millis(1), &mut gone);
    assert_eq!(b.count("create"), 0, "a may still lead");
    b.run(at(26), &mut gone);
    assert_eq!(b.token(), token(2));
}

/// An event that is not applied still raises the token in the directory, and the duration that goes
/// with it must be recorded too.
#[test]
fn i1_a_token_is_never_remembered_without_the_duration_that_goes_with_it() {
    let (mut a, mut stored) = leader("a", at(0));
    let mut newer = stored.lease().clone();
    newer.token = token(2);
    newer.revision = Revision::from_bytes([60; 16]);
    if let Some(holder) = &mut newer.holder {
        holder.claim = Claim::from_bytes([60; 16]);
        holder.lease_duration = Declared::of(seconds(100));
    }
    stored.document = Some(newer);
    a.event(at(1), &stored);
    let remembered = a.remembered.last().map(|(_, token, wait)| (*token, *wait));
    assert_eq!(remembered, Some((token(2), seconds(100))));
}

#[test]
fn i11_a_document_that_turns_foreign_under_a_leader_ends_its_leadership() {
    let (mut a, _) = leader("a", at(0));
    a.tick(at(3));
    let (renew, _) = a.take_call();
    a.reply(at(3), renew, Outcome::Rejected);
    let (read, _) = a.take_call();
    a.reply(
        at(3),
        read,
        Outcome::Applied(Found::Foreign("newer".to_owned())),
    );
    assert_eq!(
        (a.role(), a.reason()),
        (Role::Follower, Some(Reason::Rejected))
    );
    let writes = a.sent.len() - a.count("read");
    for _ in 0..5 {
        let next = a.election.next_wakeup().expect("it keeps looking");
        a.tick(next);
        let (read, _) = a.take_call();
        a.reply(
            next,
            read,
            Outcome::Applied(Found::Foreign("newer".to_owned())),
        );
    }
    assert_eq!(a.sent.len() - a.count("read"), writes);
}

#[test]
fn a_store_that_was_not_read_for_a_lease_duration_makes_the_role_unknown() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = Node::start("b", at(0));
    assert_eq!(b.role(), Role::Unknown);
    b.serve(at(0), &mut stored);
    assert_eq!(b.role(), Role::Follower);
    b.run_cut_off(at(24) - millis(1), &Outcome::Failed);
    assert_eq!(b.role(), Role::Follower);
    b.run_cut_off(at(25), &Outcome::Failed);
    assert_eq!(
        (b.role(), b.election.status().holder.clone()),
        (Role::Unknown, None)
    );
}

#[test]
fn an_idle_stream_is_contact_enough() {
    let (mut a, mut stored) = leader("a", at(0));
    a.input(at(1), Input::StepDown);
    a.input(at(1), Input::Demoted { shown: true });
    a.serve(at(1), &mut stored);
    stored.lease_mut().paused = true;
    a.event(at(2), &stored);
    for second in [10, 20, 30, 40, 50] {
        a.input(at(second), Input::Watch(Watch::Alive));
        assert_eq!(a.role(), Role::Paused);
    }
    a.tick(at(74));
    assert_eq!(a.role(), Role::Unknown);
}

#[test]
fn i1_an_insert_that_succeeds_proves_that_the_document_seen_meanwhile_is_gone() {
    let mut stored = Stored::default();
    let mut b = Node::start("b", at(0));
    b.serve_reads(at(0), &mut stored);
    assert_eq!(b.waiting(), ["create"]);
    // While the insert is in flight, a creates the document and leads.
    let mut a = Node::start("a", at(0));
    a.serve(at(0), &mut stored);
    assert!(a.leads(at(0)));
    b.input(at(1), Input::Watch(Watch::Opened));
    let read = b.calls.pop_back().expect("a read");
    let outcome = stored.apply(&identity("b"), &read.1);
    b.reply(at(1), read.0, outcome);
    // Then the document is deleted, and the insert lands.
    stored.document = None;
    b.serve(at(2), &mut stored);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    b.run(at(25), &mut stored);
    assert_eq!(b.count("acquire"), 0, "a may still lead");
}

/// Like the previous test, but the insert has the token that was seen meanwhile, because this
/// candidate already knew that token.
#[test]
fn i1_a_document_made_by_oneself_after_another_one_was_seen_went_back_too() {
    let (_, stored) = leader("a", at(0));
    let mut b = Node::start_with("b", at(0), tunables(), token(1), None);
    let mut gone = Stored::default();
    b.input(at(0), Input::Watch(Watch::Opened));
    b.serve(at(0), &mut gone);
    b.tick(at(24));
    let (create, operation) = b.take_call();
    assert_eq!(operation.as_str(), "create");
    b.event(at(25), &stored);
    let outcome = gone.apply(&b.identity, &operation);
    b.reply(at(25), create, outcome);
    assert_eq!(b.reason(), Some(Reason::StoreRolledBack));
    b.run(at(49) - millis(1), &mut gone);
    assert_eq!(b.count("acquire"), 0, "a may still lead");
    b.run(at(50), &mut gone);
    assert_eq!(b.token(), token(2));
}

#[test]
fn a_token_that_was_never_stored_is_not_remembered_as_seen() {
    let (_, mut stored) = leader("a", at(0));
    let mut b = follower("b", at(0), &mut stored);
    b.tick(at(24));
    // The takeover is lost, and the process exits.
    assert_eq!(b.waiting(), ["take_over"]);
    let remembered = b.remembered.last().map(|(_, token, _)| *token);
    assert_eq!(remembered, Some(token(1)));
    let mut b = b.successor(at(25));
    b.serve(at(25), &mut stored);
    assert_eq!((b.role(), b.notices.len()), (Role::Follower, 0));
}

#[test]
fn a_rejected_claim_is_no_proof_of_a_death_any_more() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.lease_mut().revision = Revision::from_bytes([50; 16]);
    a.tick(at(3));
    a.serve(at(3), &mut stored);
    assert_eq!(a.reason(), Some(Reason::Duplicate));
    assert_eq!(a.remembered.last().map(|(claim, _, _)| *claim), Some(None));
}

#[test]
fn a_document_made_by_oneself_after_a_higher_token_was_seen_went_back_too() {
    let (_, stored) = leader("a", at(0));
    let mut b = Node::start("b", at(0));
    let (read, _) = b.take_call();
    b.reply(at(0), read, Outcome::Applied(Found::Missing));
    let (create, operation) = b.take_call();
    assert_eq!(operation.as_str(), "create");
    b.event(at(1), &stored);
    let mut gone = Stored::default();
    let outcome = gone.apply(&b.identity, &operation);
    b.reply(at(1), create, outcome);
    b.serve(at(1), &mut gone);
    assert!(matches!(b.notices[..], [Notice::StoreRolledBack { .. }]));
}

#[test]
fn i1_a_document_that_stood_in_the_way_of_an_insert_and_is_missing_was_deleted() {
    let mut a = Node::start("a", at(0));
    let missing = Outcome::Applied(Found::Missing);
    let (read, _) = a.take_call();
    a.reply(at(0), read, missing.clone());
    let (create, _) = a.take_call();
    a.reply(at(0), create, Outcome::Rejected);
    let (read, _) = a.take_call();
    a.reply(at(0), read, missing.clone());
    let (confirm, operation) = a.take_call();
    assert_eq!(operation, Operation::Read { confirm: true });
    a.reply(at(0), confirm, missing);
    assert_eq!(a.reason(), Some(Reason::StoreRolledBack));
    let mut stored = Stored::default();
    a.run(at(24) - millis(1), &mut stored);
    assert_eq!(a.count("create"), 1, "its holder may still lead");
    a.run(at(26), &mut stored);
    assert!(a.leads(at(26)));
}

#[test]
fn i3_a_token_that_is_lowered_before_an_adoption_is_no_reason_to_lead_or_to_abort() {
    let (_, mut stored) = leader("a", at(0));
    stored.lease_mut().token = token(6);
    let mut b = follower("b", at(0), &mut stored);
    stored.lease_mut().holder = None;
    stored.lease_mut().revision = Revision::from_bytes([50; 16]);
    b.event(at(1), &stored);
    let (call, acquire) = b.take_call();
    stored.apply(&b.identity, &acquire);
    b.reply(at(1), call, Outcome::Unknown);
    assert_eq!(stored.lease().token, token(7));
    stored.lease_mut().token = token(6);
    b.run(at(10), &mut stored);
    assert!(!b.leads(at(10)), "the next one would have this token too");
    let notice = Notice::StoreRolledBack {
        seen: token(7),
        found: Some(token(6)),
        wait: seconds(24),
    };
    assert_eq!(b.notices, [notice]);
    b.run(at(60), &mut stored);
    assert_eq!((b.leads(at(60)), b.token()), (true, token(8)));
}

#[test]
fn i3_a_leader_whose_token_is_lowered_steps_down_once_a_linearizable_read_shows_it() {
    let (mut a, mut stored) = leader("a", at(0));
    stored.lease_mut().token = token(0);
    a.tick(at(3));
    let (renew, operation) = a.take_call();
    let outcome = stored.apply(&a.identity, &operation);
    a.reply(at(3), renew, outcome);
    let (read, operation) = a.take_call();
    assert_eq!(operation, Operation::Read { confirm: true });
    assert!(a.leads(at(3)));
    let outcome = stored.apply(&a.identity, &operation);
    a.reply(at(3), read, outcome);
    assert_eq!(
        (a.leads(at(3)), a.reason()),
        (false, Some(Reason::StoreRolledBack))
    );
    a.run(at(60), &mut stored);
    assert_eq!(a.token(), token(2));
}

#[test]
fn i3_what_is_put_together_of_two_documents_gives_no_token_that_was_used() {
    let (mut a, mut stored) = leader("a", at(0));
    let mut b = follower("b", at(0), &mut stored);
    // b missed the claim with token 2. Its stream applies the release of that claim to the older
    // document.
    let before = stored.lease().clone();
    a.input(at(1), Input::StepDown);
    a.input(at(1), Input::Demoted { shown: true });
    a.serve(at(1), &mut stored);
    let mut c = Node::start("c", at(1));
    c.serve(at(1), &mut stored);
    assert_eq!(c.token(), token(2));
    c.input(at(2), Input::Shutdown);
    c.input(at(2), Input::Demoted { shown: true });
    c.serve(at(2), &mut stored);
    let mixed = Lease {
        revision: stored.lease().revision,
        holder: None,
        ..before
    };
    b.input(at(3), Input::Watch(Watch::Changed(mixed)));
    let (call, operation) = b.take_call();
    assert_eq!(operation.as_str(), "acquire");
    let outcome = stored.apply(&b.identity, &operation);
    assert_eq!(outcome, Outcome::Rejected);
    b.reply(at(3), call, outcome);
    b.serve(at(3), &mut stored);
    assert_eq!((b.leads(at(3)), b.token()), (true, token(3)));
}

#[test]
fn i1_a_holder_that_is_put_together_of_two_documents_is_not_taken_over() {
    let short = Tunables {
        timings: Timings::new(TimingSettings {
            lease_duration: seconds(8),
            renew_deadline: seconds(5),
            renew_interval: millis(700),
            retry_interval: millis(300),
            operation_timeout: seconds(1),
            loss_grace: seconds(1),
        })
        .expect("the durations keep the rules"),
        ..tunables()
    };
    let (mut a, mut stored) = leader_with("a", at(0), short);
    let mut b = follower("b", at(0), &mut stored);
    let before = stored.lease().clone();
    a.input(at(1), Input::StepDown);
    a.input(at(1), Input::Demoted { shown: true });
    a.serve(at(1), &mut stored);
    let mut c = Node::start("c", at(1));
    c.serve(at(1), &mut stored);
    let mixed = Lease {
        revision: stored.lease().revision,
        ..before
    };
    b.input(at(2), Input::Watch(Watch::Changed(mixed)));
    b.tick(at(10));
    let taken = b.calls.iter().find(|(_, o)| o.as_str() == "take_over");
    let (_, operation) = taken.expect("a declared 8 s").clone();
    assert_eq!(stored.apply(&b.identity, &operation), Outcome::Rejected);
    assert!(c.leads(at(10)), "c declared 24 s");
}
