/** A provider of locks for ShedLock. The locks are held by the program {@code leasehold}. */
package leasehold.shedlock;
