// Package pgnotify makes sqlherd see the writes that do not pass through it: by
// other programs, psql, triggers, cascades, stored procedures and COPY.
//
// It has two ends, which share a [Config]. [Install] gives chosen tables of
// PostgreSQL triggers that send a notification (NOTIFY) when a transaction that
// wrote to them commits; [InstallSQL] is the same as text, for a migration.
// [Listen] waits for the notifications and calls Invalidate and InvalidateTables
// of a Herd. Whatever may have been missed, before the start and while the
// connection was lost, is made up for by invalidating the tables as a whole.
package pgnotify
