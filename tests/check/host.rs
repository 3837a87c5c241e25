//! Goal: the command reports problems of this host even if MongoDB is unreachable.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use crate::scene::{Check, Scene};

fn alone(scene: &Scene) -> Check {
    let check = scene.check("mongodb://127.0.0.1:1/?replicaSet=rs0");
    check.flag("--timeout=1s")
}

#[tokio::test]
async fn a_directory_without_write_permission_is_named_and_not_changed() {
    let scene = Scene::new().await;
    let closed = scene.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let below = closed.join("status");
    for directory in [&closed, &below] {
        let flag = format!("--status-directory={}", directory.display());
        let answer = alone(&scene).flag(&flag).without_privileges().run().await;
        answer.says("status-directory", "failed", "permission denied");
        answer.says(
            "status-directory",
            "failed",
            &directory.display().to_string(),
        );
        assert_eq!(answer.code, 2);
    }
    let answer = alone(&scene)
        .flag(&format!("--status-directory={}", below.display()))
        .without_privileges()
        .run()
        .await;
    answer.says(
        "status-directory",
        "failed",
        "set status.directory to a directory",
    );
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
}

#[tokio::test]
async fn a_directory_that_others_can_write_to_causes_a_warning() {
    let scene = Scene::new().await;
    let open = scene.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let flag = format!("--status-directory={}", open.display());
    let answer = alone(&scene).flag(&flag).run().await;
    answer.says("status-directory", "warning", "forge the status");
}

#[tokio::test]
async fn the_error_about_a_taken_port_names_the_listening_program() {
    let scene = Scene::new().await;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let answer = alone(&scene)
        .flag(&format!("--http-listen={address}"))
        .run()
        .await;
    let by = format!("process {} (", std::process::id());
    answer.says("http-port", "failed", &by);
    answer.says("http-port", "failed", "set http.listen to a free address");
    let privileged = alone(&scene).flag("--http-listen=127.0.0.1:80");
    let privileged = privileged.without_privileges().run().await;
    privileged.says("http-port", "failed", "CAP_NET_BIND_SERVICE");
    let elsewhere = alone(&scene)
        .flag("--http-listen=192.0.2.1:9402")
        .run()
        .await;
    elsewhere.says("http-port", "failed", "not an address of this machine");
    let none = alone(&scene).flag("--http-listen=").run().await;
    none.says("http-port", "skipped", "http.listen is empty");
}

#[tokio::test]
async fn ignored_variables_are_named() {
    let scene = Scene::new().await;
    let answer = alone(&scene).env("LEASEHOLD_LEASE_NAME", "x").run().await;
    answer.says("configuration", "warning", "write LEASEHOLD_LEASE__NAME");
    let answer = alone(&scene).run().await;
    answer.says(
        "configuration",
        "ok",
        "lease orders as checker, lease_duration 1m",
    );
    answer.says("boot-id", "ok", "");
}
