//! The rules of the protocol, one by one: what a contender does about each
//! thing that can happen to it.

mod harness;
mod queueing;
