use mongodb::bson::doc;

use crate::parts::{Parts, SET};
use crate::situation::Situation;

pub(crate) async fn situations(parts: &Parts) -> Vec<Situation> {
    let set = &parts.guarded;
    let may = async |name: &str, actions: &[&str]| {
        let user = set.add_user_with_actions(name, "leasehold", "leases", actions);
        set.uri_for(&user.await)
    };
    let nothing = set.add_user("nobody", Vec::new()).await;
    let right = set.uri_for(&nothing);
    let find = may("writer", &["insert", "update", "changeStream"]).await;
    let update = may("reader", &["find", "insert", "changeStream"]).await;
    let insert = may("updater", &["find", "update", "changeStream"]).await;
    let follow = may("poller", &["find", "insert", "update"]).await;
    let role = doc! { "role": "readWrite", "db": "elsewhere" };
    let elsewhere = set.add_user("elsewhere", vec![role.into()]).await;
    let certificates = set.certificates().unwrap();
    let (host, tls) = (set.node(0).address(), certificates.uri_options(true));
    let over_tls = |options: &str| format!("mongodb://{host}/?replicaSet={SET}&{tls}{options}");
    let needed = "the role needs find, insert, update and changeStream";
    let failed = |user: &str, source: &str| {
        format!(
            "authentication failed for user {user} (AuthenticationFailed, code 18): check the \
             password and authSource \"{source}\""
        )
    };
    let wrong = right.replace("p%40ss%2Fword%3A%25", "wr0ng");
    let source = "authSource=%24external&authMechanism=PLAIN";
    let plain = right.replace("authSource=admin", source);
    vec![
        Situation::lock("password wrong", &wrong, "a")
            .exits(69)
            .says("lock a: gave up after ")
            .says(&failed("nobody", "admin")),
        Situation::leases("password wrong, for an operator", &wrong)
            .says(&failed("nobody", "admin")),
        Situation::run("password wrong, for a daemon", &wrong, "b")
            .says("MongoDB read failed (attempt 1), retrying in 1s")
            // Comes after the second in which a silent server would be named.
            .says("failing_for=")
            .never_says_after("MongoDB read failed", "connecting to MongoDB")
            .says(&failed("nobody", "admin")),
        Situation::lock("user unknown", &right.replace("//nobody", "//stranger"), "c")
            .exits(69)
            .says(&failed("stranger", "admin")),
        Situation::lock("authSource wrong", &right.replace("authSource=admin", "authSource=leasehold"), "d")
        .exits(69)
        .says(&failed("nobody", "leasehold")),
        Situation::lock("authMechanism not enabled", &plain, "q")
            .exits(69)
            .says("authentication failed for user nobody (MechanismUnavailable, code 334): this mechanism is not enabled on the server: correct authMechanism"),
        Situation::lock("no user in the URI", &over_tls(""), "e")
            .exits(69)
            .says("authentication required (Unauthorized, code 13): the URI has no user"),
        Situation::lock(
            "certificate without a user",
            &over_tls("&authSource=%24external&authMechanism=MONGODB-X509"),
            "f",
        )
        .exits(69)
        .says("authentication failed for the client certificate: its subject must be a user of $external"),
        Situation::lock("no rights", &right, "g").exits(69).says(needed),
        Situation::lock("rights on another database", &set.uri_for(&elsewhere), "h")
            .exits(69)
            .says("not authorized (Unauthorized, code 13): user elsewhere lacks the right find or update; "),
        Situation::locks("no right to find", &find)
            .says(&format!("not authorized (Unauthorized, code 13): user writer may not find; {needed}")),
        Situation::lock("no right to update", &update, "i")
            .exits(69)
            .says(&format!("not authorized (Unauthorized, code 13): user reader lacks the right find or update; {needed}")),
        Situation::lock("a right to update, but not to find", &find, "r")
            .exits(69)
            .says("user writer lacks the right find or update; ")
            .says(needed),
        Situation::lock("no right to insert", &insert, "j")
            .exits(69)
            .says(&format!("not authorized (Unauthorized, code 13): user updater may not insert; {needed}")),
        Situation::run("no right for change streams", &follow, "k")
            .says("no change stream, polling")
            .says("user poller lacks the right find or changeStream")
            .says("to=leader"),
    ]
}
