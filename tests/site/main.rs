//! Goal: a newcomer who copies the commands of a page sees the page's output, and finds every page
//! and every link target. Method: copies the files and commands from a page, runs them in one
//! shell with a real replica set, and compares the output with the page. Other tests read the
//! pages as text.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod commands;
mod compose;
mod links;
mod page;
mod picture;
mod runbooks;
mod session;
mod shape;
