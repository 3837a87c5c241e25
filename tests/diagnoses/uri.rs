//! Situations with an invalid connection string, or with a file that contains none.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::machine::without_privileges;
use crate::parts::Parts;
use crate::situation::Situation;

pub(crate) fn situations(parts: &Parts) -> Vec<Situation> {
    let with = |option: &str| format!("{}&{option}", parts.open.uri());
    let refused = "is refused by the driver";
    let file = |name: &'static str, make: &dyn Fn(&std::path::Path)| {
        let situation = Situation::run(name, "", "a").without_uri();
        let path = situation.path("file");
        make(&path);
        let path = path.display().to_string();
        situation
            .flag(&format!("--mongodb-uri-file={path}"))
            .exits(78)
            .says(&path)
    };
    let unreadable = |path: &std::path::Path| {
        fs::write(path, "mongodb://u:hunter2@h/").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    };
    vec![
        Situation::run("w=0 in the URI", &with("w=0"), "w-0")
            .says("to=leader")
            .never_says("no change stream"),
        Situation::run("unknown option", &with("nonsense=1"), "a")
            .exits(78)
            .says("has the unknown option nonsense: correct its name, or remove it"),
        Situation::run("misspelt option", &with("readPreferense=primary"), "a")
            .exits(78)
            .says("has the unknown option readPreferense: write readPreference, or remove it"),
        Situation::run("invalid value of an option", &with("directConnection=yes"), "a")
            .exits(78)
            .says("option must be a boolean): correct the value of directConnection, or remove what contradicts"),
        Situation::run("proxy", &with("proxyHost=proxy.example.net"), "a")
            .exits(78)
            .says("has the option proxyHost: connections through a SOCKS5 proxy are not supported"),
        Situation::run("flags without an effect", &parts.open.uri(), "a")
            .flag("--http-ready-when=leader")
            .flag("--hooks-timeout=3s")
            .flag("--workload-health-period=3s")
            .exits(78)
            .says("http.ready_when = \"leader\" (flag --http-ready-when): it applies to the HTTP endpoints, which are off: set http.listen")
            .says("hooks.timeout = \"3s\" (flag --hooks-timeout): it applies to a hook: set hooks.on_lead or hooks.on_step_down")
            .says("workload.health.period = \"3s\" (flag --workload-health-period): it applies to a health check: set workload.health.url or workload.health.command"),
        Situation::run(
            "loadBalanced",
            "mongodb://127.0.0.1/?loadBalanced=true",
            "a",
        )
        .exits(78)
        .says("has the option loadBalanced: changes of the primary"),
        Situation::run(
            "bad percent-encoding",
            "mongodb://u:hunter2%zz@127.0.0.1/",
            "a",
        )
        .exits(78)
        .says(refused)
        .says("percent-encode user name and password"),
        Situation::run("another scheme", "postgres://u:hunter2@127.0.0.1/", "a")
            .exits(78)
            .says("must begin with mongodb:// or mongodb+srv://"),
        Situation::run(
            "contradictory options",
            "mongodb://127.0.0.1:1,127.0.0.1:2/?directConnection=true",
            "a",
        )
        .exits(78)
        .says("correct the value of directConnection, or remove what contradicts it"),
        file("uri_file missing", &|_| {}).says("there is no such file; create it"),
        file("uri_file unreadable", &unreadable)
            .by(&without_privileges())
            .says("permission denied; let this user read it, or correct mongodb.uri_file"),
        file("uri_file empty", &|path| fs::write(path, "\n").unwrap())
            .says("is empty: write the connection string into it"),
        file("uri_file a directory", &|path| {
            fs::create_dir(path).unwrap()
        })
        .says("is a directory"),
    ]
}
