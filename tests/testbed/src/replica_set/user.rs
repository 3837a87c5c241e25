//! Describes the users of a replica set, and builds connection strings for them.

use mongodb::bson::{Bson, Document, doc};

use crate::Certificates;

/// A user that can log in.
#[derive(Debug, Clone)]
pub struct User {
    name: String,
    /// `None` for a user that authenticates with a certificate.
    password: Option<String>,
}

impl User {
    /// Returns a user that authenticates with a password (SCRAM).
    pub fn with_password(name: &str, password: &str) -> Self {
        Self {
            name: name.to_owned(),
            password: Some(password.to_owned()),
        }
    }

    /// Returns a user that authenticates with the client's certificate (X.509).
    pub fn with_certificate(subject: &str) -> Self {
        Self {
            name: subject.to_owned(),
            password: None,
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the password; `None` with a certificate.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(super) fn creation(&self, roles: Vec<Bson>) -> Document {
        let mut creation = doc! { "createUser": &self.name, "roles": roles };
        if let Some(password) = &self.password {
            creation.insert("pwd", password);
        }
        creation
    }
}

pub(super) fn uri(
    addresses: &str,
    options: &[&str],
    user: Option<&User>,
    tls: Option<&Certificates>,
) -> String {
    let mut options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    let mut credential = String::new();
    match user {
        Some(User {
            name,
            password: Some(password),
        }) => {
            credential = format!("{}:{}@", escaped(name), escaped(password));
            options.push("authSource=admin".to_owned());
        }
        // The server takes the name from the certificate. Driver 3.9.1 would send a given name as
        // `username`, which the server refuses as an unknown field.
        Some(User {
            name: _,
            password: None,
        }) => {
            options.push("authSource=%24external&authMechanism=MONGODB-X509".to_owned());
        }
        None => {}
    }
    if let Some(certificates) = tls {
        options.push(certificates.uri_options(true));
    }
    format!("mongodb://{credential}{addresses}/?{}", options.join("&"))
}

fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_escaped() {
        let user = User::with_password("a b", "p@ss/word:%");
        assert_eq!(
            uri(
                "127.0.0.1:11111",
                &["replicaSet=testbed"],
                Some(&user),
                None
            ),
            "mongodb://a%20b:p%40ss%2Fword%3A%25@127.0.0.1:11111/?replicaSet=testbed&authSource=admin"
        );
    }
}
