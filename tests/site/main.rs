//! Goal: a newcomer who copies a page's commands sees the page's output, and every page and link
//! target exists. Method: copy the files and commands from a page, run them in one shell with a
//! real replica set, and compare the output with the page. Other tests check the text of the pages.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod commands;
mod compose;
mod links;
mod page;
mod picture;
mod runbooks;
mod session;
mod shape;
