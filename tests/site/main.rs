//! Goal: the pages for newcomers are complete, their links lead somewhere, and their commands work
//! when they are copied.
//! Method: the pages are read as text; the files and commands of a page are copied from it and run
//! in one shell, on a real replica set, and the output is compared with the page.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod commands;
mod links;
mod page;
mod picture;
mod session;
mod shape;
