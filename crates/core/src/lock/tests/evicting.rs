//! Evicting entries whose owners no longer renew.

use super::harness::{Scene, seconds, slots};
use crate::lock::Want;

#[test]
fn a_grantee_has_its_time_to_confirm_from_its_grant_on_and_no_more() {
    let mut scene = Scene::empty();
    scene.streams = false;
    let [a, frozen, c] = ["a", "frozen", "c"].map(|name| scene.come(name, Want::Exclusive));
    let granted = scene.claim(frozen);
    scene.pass_for(seconds(4), &[a, c]);
    scene.input(a, crate::lock::Input::Release);
    scene.settle_one(a);
    scene.pass_for(seconds(2), &[c]);
    assert_eq!(scene.document().holders[0].claim, granted);
    scene.pass_for(seconds(4), &[c]);
    assert_eq!(scene.token(c), Some(2));
    assert_eq!(scene.document().holders.len(), 1);
}

#[test]
fn a_holder_evicts_an_expired_holder_although_nobody_waits() {
    let mut scene = Scene::empty();
    let [a, _expired] = ["a", "expired"].map(|name| scene.come(name, slots(2)));
    scene.pass_for(seconds(23), &[a]);
    assert_eq!(scene.document().holders.len(), 2);
    scene.pass_for(seconds(6), &[a]);
    assert_eq!(scene.document().holders.len(), 1);
    assert_eq!(scene.token(a), Some(1));
}
