//go:build unix

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// clusterMasters is the least number that Redis makes a Cluster of.
const clusterMasters = 3

func (f *fleet) redis() error {
	server, err := find("redis-server", "valkey-server")
	if err != nil {
		return err
	}
	f.setenv("SQLHERD_TEST_REDIS_SERVER", server)
	port, err := f.startRedis("redis")
	if err != nil {
		return err
	}
	f.setenv("SQLHERD_TEST_REDIS", fmt.Sprintf("redis://127.0.0.1:%d/0", port))
	return nil
}

func (f *fleet) redisCluster() error {
	var addrs []string
	for i := range clusterMasters {
		port, err := f.startRedis("redis-cluster-"+strconv.Itoa(i),
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000")
		if err != nil {
			return err
		}
		addrs = append(addrs, "127.0.0.1:"+strconv.Itoa(port))
	}
	cli, err := find("redis-cli", "valkey-cli")
	if err != nil {
		return err
	}
	args := append([]string{"--cluster", "create"}, addrs...)
	if err := f.do(nil, f.dir, cli, append(args, "--cluster-replicas", "0", "--cluster-yes")...); err != nil {
		return err
	}
	// Every node must know of every slot, not only the one that was asked.
	for i, addr := range addrs {
		s := f.serverNamed("redis-cluster-" + strconv.Itoa(i))
		if err := f.await(s, func() error {
			return f.redisSays(cli, addr, "cluster_state:ok", "CLUSTER", "INFO")
		}); err != nil {
			return err
		}
	}
	f.setenv("SQLHERD_TEST_REDIS_CLUSTER", strings.Join(addrs, ","))
	return nil
}

// startRedis starts one Redis process. Redis does not mind being root, so it
// runs as this process does, like the ones that tests start.
func (f *fleet) startRedis(name string, extra ...string) (int, error) {
	program, err := find("redis-server", "valkey-server")
	if err != nil {
		return 0, err
	}
	cli, err := find("redis-cli", "valkey-cli")
	if err != nil {
		return 0, err
	}
	dir, err := f.subdir(name, nil)
	if err != nil {
		return 0, err
	}
	return f.startServer(name, nil, dir, program,
		func(port int) []string {
			return append([]string{
				"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
				"--save", "", "--appendonly", "no", "--databases", "64",
				"--set-proc-title", "no", // the arguments tell "servers stop" that the process is ours
			}, extra...)
		},
		func(port int) error {
			return f.redisSays(cli, "127.0.0.1:"+strconv.Itoa(port), "PONG", "PING")
		})
}

// redisSays reports an error unless the answer to a command contains want.
func (f *fleet) redisSays(cli, addr, want string, command ...string) error {
	host, port, _ := strings.Cut(addr, ":")
	out, err := f.output(nil, f.dir, cli, append([]string{"-h", host, "-p", port}, command...)...)
	if err != nil {
		return err
	}
	if !strings.Contains(out, want) {
		return errors.New(out)
	}
	return nil
}

func (f *fleet) serverNamed(name string) *server {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.servers {
		if s.name == name {
			return s
		}
	}
	panic("bug: no server named " + name)
}
