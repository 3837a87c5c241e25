//! Goal: whichever of daemon, workload's container and command are killed, no command acts at the
//! same time as another (I6), and the lease is led again. Method: as in `kills`, with two pods of two
//! containers each. A killed container is restarted after all of its processes have ended, as by
//! Kubernetes. `make kills` runs more rounds.

use crate::kill_scene::{Form, Scene, kill_at_a_cpu_quota, rounds};

const IDENTITIES: [&str; 2] = ["a", "b"];
const COMMAND: usize = 0;
const PROCESS_1: usize = 1;
const DAEMON: usize = 2;

#[tokio::test]
async fn i6_no_command_overlaps_one_whose_container_was_killed_at_a_cpu_quota() {
    let lease = "container-kills-quota";
    kill_at_a_cpu_quota(lease, Form::TwoContainers, &IDENTITIES, |random| {
        // The kernel ends the container after its process 1. A runtime kills each process.
        let (process_1, container) = ([PROCESS_1].as_slice(), [COMMAND, PROCESS_1].as_slice());
        let mut victims = random.pick(&[process_1, container]).to_vec();
        match random.below(6) {
            0 => victims.push(DAEMON),
            1 => victims = vec![DAEMON],
            _ => {}
        }
        (container.len(), victims)
    })
    .await;
}

#[tokio::test]
async fn i6_no_command_overlaps_another_whichever_containers_are_killed() {
    let mut scene = Scene::new("container-kills", Form::TwoContainers, &IDENTITIES, false).await;
    let mut leader = scene.next().await;
    let mut kills = 0;
    for round in 0..rounds().div_ceil(5) {
        for subset in 1..8_u8 {
            let all = [leader.daemon, leader.guard, leader.command];
            let chosen = |(bit, _): &(usize, u32)| subset & (1 << bit) != 0;
            let victims = all.into_iter().enumerate().filter(chosen);
            let victims = victims.map(|(_, victim)| victim).collect();
            let killed = scene.kill(victims).await;
            let subset = format!("{subset:b} of command, container and daemon");
            let what = format!("round {round}, killed subset {subset}");
            leader = scene.after(killed, &what).await;
            kills += 1;
        }
    }
    scene.report(kills);
}
