//! Goal: a user whose name contains unusual characters can log in if other drivers accept the name.

use leasehold_testbed::User;
use mongodb::bson::doc;

use crate::entrance::{LONG, keeps_secrets, stage};

async fn created(set: &leasehold_testbed::ReplicaSet, name: &str, mechanisms: &[&str]) -> User {
    let user = User::with_password(name, "p@ss/word:%");
    let creation = doc! {
        "createUser": name, "pwd": user.password(), "roles": ["root"], "mechanisms": mechanisms,
    };
    let admin = set.client().database("admin");
    admin.run_command(creation).await.expect("a user");
    user
}

#[tokio::test]
async fn a_user_name_with_a_comma_and_an_equals_sign_logs_in() {
    let stage = stage().await;
    let both = ["SCRAM-SHA-1", "SCRAM-SHA-256"];
    let user = created(stage.set(), "reports, cn=nightly", &both).await;
    let uri = stage.set().uri_for(&user);
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    keeps_secrets(&a, &[]).await;
    let wrong = uri.replace("p%40ss", "wr0ng-Secret");
    let b = stage.candidate("b").uri(&wrong).start();
    let refused = "authentication failed for user reports, cn=nightly (AuthenticationFailed, code 18): check the password";
    b.wait_logged(refused, LONG).await;
    keeps_secrets(&b, &["wr0ng-Secret"]).await;
}

#[tokio::test]
async fn an_x509_login_may_name_its_user() {
    let stage = stage().await;
    let role = doc! { "role": "readWrite", "db": stage.database() };
    let user = stage.set().add_certificate_user(vec![role.into()]).await;
    let escapes = [(' ', "%20"), (',', "%2C"), ('=', "%3D")];
    let subject = escapes
        .iter()
        .fold(user.name().to_owned(), |name, (sign, escape)| {
            name.replace(*sign, escape)
        });
    let uri = stage.set().uri_for(&user);
    let named = uri.replacen("mongodb://", &format!("mongodb://{subject}@"), 1);
    stage.candidate("a").uri(&named).leading(LONG).await;
}
