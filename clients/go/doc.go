// Package leasehold reads the status of a leasehold daemon, follows its events, and holds its locks.
//
//   - [ReadStatus] reads the status file.
//   - [Follow] follows the event stream of a daemon on this machine.
//   - [Lock] holds a lock through the program leasehold.
//
// A result can be out of date at any time: check it immediately before each effect, and send the
// token with the effect. Systems other than Linux have no CLOCK_BOOTTIME, so there every result
// reports "not leader".
package leasehold
