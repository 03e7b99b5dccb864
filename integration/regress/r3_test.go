package regress

import (
	"fmt"
	"testing"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/testenv"
)

// R3: same name, new sandbox, events out of order. Whatever order ADD and DEL of two sandboxes of one
// pod come in, the newer one is enforced, reachable, and follows the next edit.
func TestR3SameNameNewSandbox(t *testing.T) {
	orders := []struct {
		name string
		run  func(*succession)
	}{
		{"a: ADD c1, DEL c1, ADD c2", func(s *succession) {
			s.first()
			s.delFirst()
			s.second()
		}},
		{"b: ADD c1, ADD c2, DEL c1", func(s *succession) {
			s.first()
			s.second()
			s.delFirst()
		}},
		{"c: as b, then DEL c1 twice more, with nothing known of it", func(s *succession) {
			s.first()
			s.second()
			for range 3 {
				s.delFirst()
				s.bare = true
			}
		}},
		{"d: ADD c1, DEL c1, the policy lists the address of c1, ADD c2", func(s *succession) {
			s.first()
			s.delFirst()
			s.lists(s.c1)
			s.second()
		}},
		{"e: DEL c1 and an edit together, then ADD c2", func(s *succession) {
			s.first()
			s.delAndEdit()
			s.second()
		}},
	}
	for _, o := range orders {
		for _, sameVeth := range []bool{false, true} {
			for _, sameUID := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, same veth name %v, same uid %v", o.name, sameVeth, sameUID), func(t *testing.T) {
					t.Parallel()
					s := &succession{ground: newGround(t, options{}), sameVeth: sameVeth, sameUID: sameUID, port: 443}
					s.lists()
					s.start("C", testenv.PodC)
					o.run(s)
					s.verify()
				})
			}
		}
	}
}

// succession is two sandboxes of one pod.
type succession struct {
	*ground
	sameVeth bool // the host veth of c2 has the name of c1's
	sameUID  bool // c2 is a new sandbox of the same pod, not a new pod of the name
	bare     bool // the runtime knows neither netns nor prevResult of c1 any more
	port     int  // that the policy allows
	listed   []v1alpha1.PodEndpoint
	c1, c2   *pod
}

func (s *succession) spec(last string, host string) testenv.PodSpec {
	return testenv.PodSpec{Namespace: "t1", Name: "db-0", Labels: map[string]string{"app": "a"},
		Addr4: "10.0.1." + last, Addr6: "fd00:10:1::" + last, HostName: host}
}

func (s *succession) policyText(ports string) string {
	return "t1/db app=a IE\nE web " + ports + "\nI C tcp/5432"
}

// lists writes the policy, with pods in podSelectorEndpoints.
func (s *succession) lists(pods ...*pod) {
	s.t.Helper()
	pe := s.policy(s.policyText(fmt.Sprintf("tcp/%d", s.port))).lists(pods...)
	s.listed = pe.Spec.PodSelectorEndpoints
	s.write(pe.file(), pe.manifest())
}

func (s *succession) first() {
	s.t.Helper()
	s.c1 = s.pod("db-0", s.spec("11", "enidb1"))
	s.c1.uid = "uid-1"
	s.c1.publish(nil)
	s.c1.add()
	s.expect("first sandbox", "db-0 > web tcp/443 : allow\ndb-0 > web tcp/80 : deny")
}

func (s *succession) second() {
	s.t.Helper()
	host := "enidb2"
	if s.sameVeth {
		host = "enidb1"
		if _, err := s.Node.Netlink.LinkByName(host); err == nil {
			s.c1.end()
		}
	}
	s.c2 = s.pod("db-0", s.spec("14", host))
	s.c2.uid = "uid-2"
	if s.sameUID {
		s.c2.uid = s.c1.uid
	}
	s.c2.publish(nil)
	s.c2.add()
}

func (s *succession) delFirst() {
	s.t.Helper()
	env, conf := s.c1.env(), s.c1.conf(nil)
	if s.bare {
		delete(env, "CNI_NETNS")
		delete(conf, "prevResult")
	}
	if _, err := s.invoke("DEL", s.bin, env, conf); err != nil {
		s.t.Fatalf("DEL of the first sandbox: %v", err)
	}
	delete(s.added, s.c1.container)
}

func (s *succession) delAndEdit() {
	s.t.Helper()
	s.port = 444
	done := make(chan struct{})
	go func() {
		defer close(done)
		pe := s.policy(s.policyText("tcp/444"))
		if err := s.put(pe.file(), pe.manifest()); err != nil {
			s.t.Error(err)
		}
	}()
	s.delFirst()
	<-done
}

// verify requires that the second sandbox obeys the policy, then that it obeys an edit: the maps that
// were edited are the ones that its programs read.
func (s *succession) verify() {
	s.t.Helper()
	table := fmt.Sprintf(`
		db-0 > web tcp/%d : allow
		db-0 > web tcp/80,%d : deny
		C > db-0 tcp/5432 : allow
		C > db-0 tcp/5433 : deny`, s.port, 443+444-s.port)
	s.becomes("second sandbox", table)
	s.expect("second sandbox", table)
	pe := s.policy(s.policyText(fmt.Sprintf("tcp/%d tcp/8443", s.port)))
	pe.Spec.PodSelectorEndpoints = s.listed // as it was: who leaves the list leaves the policy
	s.write(pe.file(), pe.manifest())
	s.becomes("policy gains a port", "db-0 > web tcp/8443 : allow\ndb-0 > web tcp/80 : deny")
	s.healthy()

	live, err := s.store().ListAttachments()
	if err != nil {
		s.t.Fatal(err)
	}
	if len(live) != 2 { // and C
		s.t.Errorf("%d attachments, want those of the second sandbox and C: %+v", len(live), live)
	}
	for _, a := range live {
		if a.PodName == "db-0" && (a.ContainerID != s.c2.container || a.Interfaces[0].Ifindex != s.c2.HostIfindex) {
			s.t.Errorf("attachment %+v, want that of the second sandbox", a)
		}
	}
	s.c2.gone()
	s.eventually(inForce, func() error {
		left, err := s.store().Members(s.c2.identifier())
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("members %+v after DEL", left)
		}
		return err
	})
}
