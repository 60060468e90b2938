// SPDX-License-Identifier: GPL-2.0-only

package main

// The errors that an operator meets, each made on purpose, and the words of its message.

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"wq.example/wq"
)

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func writePEM(file, kind string, der []byte) string {
	must(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

func newAuthority(file string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: file},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	must(err)
	return &authority{cert, key, writePEM(file, "CERTIFICATE", der)}
}

// sign makes a certificate for an address, and returns its file and that of its key.
func (a *authority) sign(name string, address net.IP, from, to time.Duration) (string, string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	cert := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "root"},
		NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to), IPAddresses: []net.IP{address},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	must(err)
	der2, err := x509.MarshalECPrivateKey(key)
	must(err)
	return writePEM(name+".crt", "CERTIFICATE", der), writePEM(name+".key", "EC PRIVATE KEY", der2)
}

type errorTest struct {
	config
	failed int
}

// expect runs a command that must fail with the words.
func (t *errorTest) expect(what, words string, args ...string) {
	t.command(what, words, true, args)
}

// works runs a command that must succeed and print the words.
func (t *errorTest) works(what, words string, args ...string) {
	t.command(what, words, false, args)
}

func (t *errorTest) command(what, words string, fails bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if args[0] != "setpriv" {
		args = append([]string{t.bin + "/wq-etcd"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if fails == (err != nil) && strings.Contains(out.String(), words) {
		fmt.Println("ok", what)
		return
	}
	t.failed++
	fmt.Printf("fault: %s: expected %q, got %v:\n%s\n", what, words, err, out.String())
}

// server starts an etcd of its own, and returns a function that ends it.
func (t *errorTest) server(name, scheme string, port int, args ...string) func() {
	stop, _ := t.serverPID(name, scheme, port, args...)
	return stop
}

func (t *errorTest) serverPID(name, scheme string, port int, args ...string) (func(), int) {
	url := fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)
	peer := fmt.Sprintf("http://127.0.0.1:%d", port+1)
	cmd := exec.Command(t.bin+"/etcd", append([]string{"--name", name,
		"--data-dir", t.dir + "/" + name,
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", name + "=" + peer,
		"--log-level", "error", "--unsafe-no-fsync"}, args...)...)
	must(cmd.Start())
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for i := 0; i < 300; i++ {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return func() { cmd.Process.Kill(); cmd.Wait() }, cmd.Process.Pid
}

func errorsMain(args []string) error {
	var t errorTest
	fs := flag.NewFlagSet("errors", flag.ExitOnError)
	t.flags(fs)
	fs.Parse(args)
	must(os.MkdirAll(t.dir, 0o700))
	t.connection()
	t.certificates()
	t.queue()
	if t.failed > 0 {
		return fmt.Errorf("%d errors were not as expected", t.failed)
	}
	return nil
}

func (t *errorTest) connection() {
	t.expect("no etcd", "does a majority of the servers run",
		"status", "--endpoints", "127.0.0.1:1", "mail")
	t.expect("no file of the CA", "no such file", "status", "--cacert", "/none", "mail")
	t.expect("unknown option", "flag provided but not defined", "status", "--endpoint", "x", "mail")
	must(os.WriteFile(t.dir+"/conf", []byte("# a comment\nttl = 15s\nnonsense = 1\n"), 0o600))
	t.expect("option of a file", `conf:3: there is no option "nonsense"`,
		"status", "--config", t.dir+"/conf", "mail")
	t.expect("margin", "at most half of the TTL",
		"run", "--ttl", "4s", "--margin", "3s", "mail", "true")
	t.expect("no shards", "1 to 65536 shards", "run", "--shards", "0", "mail", "true")
}

func (t *errorTest) certificates() {
	local := net.IPv4(127, 0, 0, 1)
	ours, other := newAuthority(t.dir+"/ca.crt"), newAuthority(t.dir+"/other.crt")
	cert, key := ours.sign(t.dir+"/server", local, -time.Hour, time.Hour)
	clientCert, clientKey := ours.sign(t.dir+"/client", local, -time.Hour, time.Hour)
	stop := t.server("tls", "https", 24001, "--cert-file", cert, "--key-file", key,
		"--client-cert-auth", "--trusted-ca-file", ours.file)
	at := []string{"--endpoints", "https://127.0.0.1:24001"}
	with := func(more ...string) []string {
		return append(append([]string{"status"}, at...), append(more, "mail")...)
	}
	good := []string{"--cacert", ours.file, "--cert", clientCert, "--key", clientKey}
	t.expect("TLS that works", "there is no queue", with(good...)...)
	t.expect("wrong CA", "is not the CA", with("--cacert", other.file)...)
	t.expect("no certificate of the client", "see --cert and --key", with("--cacert", ours.file)...)
	t.expect("key without certificate", "client's certificate can't be used",
		with("--cacert", ours.file, "--key", clientKey)...)
	stop()

	cert, key = ours.sign(t.dir+"/later", local, time.Hour, 2*time.Hour)
	stop = t.server("clock", "https", 24011, "--cert-file", cert, "--key-file", key)
	at = []string{"--endpoints", "https://127.0.0.1:24011"}
	t.expect("clock off", "set the clock", with("--cacert", ours.file)...)
	stop()

	cert, key = ours.sign(t.dir+"/name", net.IPv4(10, 1, 1, 1), -time.Hour, time.Hour)
	stop = t.server("name", "https", 24021, "--cert-file", cert, "--key-file", key)
	at = []string{"--endpoints", "https://127.0.0.1:24021"}
	t.expect("certificate of another name", "not for the name", with("--cacert", ours.file)...)
	stop()
}

func (t *errorTest) queue() {
	const port, at = 24031, "127.0.0.1:24031"
	defer t.server("queue", "http", port)()
	t.expect("TLS to a server without", "does not use TLS", "status", "--endpoints", "https://"+at,
		"--cacert", t.dir+"/ca.crt", "mail")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, DialTimeout: 20 * time.Second,
		Logger: zap.NewNop()})
	must(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	put := func(key, value string) {
		_, err := client.Put(ctx, key, value)
		must(err)
	}
	run := func(more ...string) []string {
		return append(append([]string{"run", "--endpoints", at, "--ttl", "4s", "--margin", "1s"},
			more...), "mail", "true")
	}
	put(prefix+"config", `{"Version":7,"Shards":16}`)
	t.expect("another version", "in use by version 7", run()...)
	put(prefix+"config", `hello`)
	t.expect("another program", "used by another program", run()...)
	put(prefix+"config", `{"Version":2,"Shards":16}`)
	t.expect("other shards", "these never change", run("--shards", "8")...)
	t.expect("key too long", "1 to 1024 bytes",
		"add", "--endpoints", at, "mail", strings.Repeat("x", 1025))
	t.works("add", "", "add", "--endpoints", at, "mail", "alice")
	t.verbs(at)
	t.owners(run)
	put(prefix+"live/member/twin", `{"Host":"elsewhere","PID":17,"TTL":1}`)
	t.expect("two members of one name", "process 17 on elsewhere",
		run("--shards", "16", "--member", "twin")...)

	_, err = client.UserAdd(ctx, "root", "secret")
	must(err)
	_, err = client.UserGrantRole(ctx, "root", "root")
	must(err)
	_, err = client.UserAdd(ctx, "alice", "pw")
	must(err)
	_, err = client.AuthEnable(ctx)
	must(err)
	t.expect("no user", "see --user", "status", "--endpoints", at, "mail")
	t.expect("wrong password", "see --user", "status", "--endpoints", at, "--user", "root:no", "mail")
	t.expect("user without rights", "needs the right",
		"status", "--endpoints", at, "--user", "alice:pw", "mail")
	t.works("right user", "", "status", "--endpoints", at, "--user", "root:secret", "mail")
}

// owners makes the local queues as another user ahead of the member: it must use neither.
func (t *errorTest) owners(run func(...string) []string) {
	args := run("--shards", "16", "--member", "owners")
	// The member makes mail.work before it looks at mail.
	for _, name := range []string{"mail.work", "mail"} {
		q, err := wq.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666, wq.Attrs{})
		must(err)
		must(os.Chown("/dev/wqueue/"+name, nobody, nobody))
		t.expect("another user's queue "+name, "the local queue "+name+" belongs to uid 65534, which "+
			"is neither root", args...)
		t.expect("another user's queue "+name+" and another --owner", "belongs to uid 65534, which",
			append([]string{args[0], "--owner", "65533"}, args[1:]...)...)
		// As in the unit, root has no capability. The owner of the queue alone may open it.
		must(os.Chmod("/dev/wqueue/"+name, 0o600))
		t.expect("another user's private queue "+name, "the local queue "+name+" belongs to uid 65534, "+
			"and wq-etcd runs as uid 0", append([]string{"setpriv", "--bounding-set=-all",
			t.bin + "/wq-etcd"}, args...)...)
		must(wq.Unlink(name))
		must(q.Close())
	}
	must(wq.Unlink("mail.work"))
	t.expect("owner that is no user", "is neither the number of a user nor a name",
		append([]string{args[0], "--owner", "no such user"}, args[1:]...)...)
}

const nobody = 65534

// verbs are those of an operator, in a queue without members that has the key alice.
func (t *errorTest) verbs(at string) {
	call := func(verb string, more ...string) []string {
		return append([]string{verb, "--endpoints", at}, more...)
	}
	t.works("why of a key that needs a run", "waits for an owner of its shard",
		call("why", "mail", "bob", "alice")...)
	t.works("why of a key that needs none", "no run is needed", call("why", "mail", "bob")...)
	t.expect("delay without unit", "is no time", call("delay", "mail", "90", "alice")...)
	t.works("delay", "", call("delay", "mail", "90m", "alice", "carol")...)
	t.works("why of a delayed key", "it runs in 1h", call("why", "mail", "alice")...)
	t.works("ls of a delayed key", `"key":"carol","state":"delayed"`, call("ls", "--json", "mail")...)
	t.expect("priority that is too high", "is no priority", call("priority", "mail", "128", "dave")...)
	t.works("priority", "", call("priority", "mail", "5", "dave")...)
	t.works("lower priority", "", call("priority", "mail", "-5", "dave", "erin")...)
	t.works("ls of the higher priority", `"priority":5}`, call("ls", "--json", "mail")...)
	t.works("ls of the lower priority", `"priority":-5}`, call("ls", "--json", "mail")...)
	t.works("kick", "", call("kick", "mail", "alice")...)
	t.works("why of a kicked key", "waits for an owner", call("why", "mail", "alice")...)
	t.works("cancel", "", call("cancel", "mail", "carol")...)
	t.works("why of a canceled key", "no run is needed", call("why", "mail", "carol")...)
	t.expect("cancel of a key that needs no run", `key "carol": no run is needed`,
		call("cancel", "mail", "carol", "alice")...)
	t.works("the other key of that cancel", "no run is needed", call("why", "mail", "alice")...)
	t.expect("kick of a key that needs no run", "no run is needed", call("kick", "mail", "bob")...)
	t.works("pause", "", call("pause", "mail")...)
	t.works("status of a paused queue", `"paused":true`, call("status", "--json", "mail")...)
	t.works("resume", "", call("resume", "mail")...)
	t.works("status after that", `"paused":false`, call("status", "--json", "mail")...)
	t.expect("status of a key", "too many arguments", call("status", "mail", "alice")...)
}
