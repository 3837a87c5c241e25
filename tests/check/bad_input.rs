//! Goal: `leasehold check` and `leasehold run` report errors in flags and configuration with the
//! same text.

use crate::scene::Scene;

#[tokio::test]
async fn an_invalid_command_line_exits_64_before_any_check() {
    let scene = Scene::new().await;
    for (flag, named) in [
        (
            "--timeout=0s",
            "invalid value '0s' for '--timeout <DURATION>'",
        ),
        (
            "--timeout=10",
            "invalid value '10' for '--timeout <DURATION>'",
        ),
        ("--timeout=-1s", "--timeout"),
        ("--timeout=1h", "--timeout"),
        ("--output=xml", "--output"),
        ("--nonsense", "--nonsense"),
    ] {
        let answer = scene.check("mongodb://h/").flag(flag).run().await;
        assert_eq!(answer.code, 64, "{answer:?}");
        assert_eq!(answer.stdout, "");
        assert!(answer.stderr.contains(named), "{answer:?}");
    }
}

#[tokio::test]
async fn an_invalid_configuration_exits_78_with_all_mistakes() {
    let scene = Scene::new().await;
    let check = scene.check("mongodb://me:wr0ng/x@h/").flag("--lease=");
    let answer = check.flag("--lease-retry-interval=0").run().await;
    assert_eq!(answer.code, 78, "{answer:?}");
    assert_eq!(answer.stdout, "");
    answer.keeps_secrets();
    for named in [
        "configuration refused",
        "lease.name",
        "--lease-retry-interval",
        "percent-encode",
    ] {
        assert!(answer.stderr.contains(named), "{named}: {answer:?}");
    }
}

#[tokio::test]
async fn a_secret_in_the_wrong_place_is_not_shown() {
    let scene = Scene::new().await;
    let answer = scene
        .check("mongodb://h/")
        .flag("--timeout=mongodb://me:wr0ng@h/")
        .run()
        .await;
    assert_eq!(answer.code, 64);
    answer.keeps_secrets();
}
