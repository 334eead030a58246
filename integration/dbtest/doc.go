// Package dbtest gives tests the real thing: databases and Redis servers of
// their own, a network that fails on request, and other processes.
//
//   - [PQ], [PGX], [MariaDB], [SQLite] and [SQLiteCgo] give a test an empty
//     database, seen through one driver; [EachDatabase] runs a subtest on each.
//   - [Redis] and [RedisCluster] give it a namespace on the shared servers,
//     [StartRedis] a server of its own that it may stop, pause and restart.
//   - [NewProxy] stands between a client and a server, and passes, refuses,
//     stalls or cuts.
//   - [NewRole] and [Spawn] run part of a test in a child process, which can be
//     paused and killed.
//
// Everything ends with the test that asked for it. The servers' addresses come
// from SQLHERD_TEST_* variables, which make test and make servers set. Without
// them a test is skipped; with SQLHERD_TEST_REQUIRE_SERVERS=1, as make test
// sets it, it fails.
package dbtest
