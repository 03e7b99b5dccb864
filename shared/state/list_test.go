package state

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/testenv"
)

// On a tmpfs, where records are, reading a folder can leave out a file that is replaced meanwhile.
func TestListMissesNoRecordThatIsBeingReplaced(t *testing.T) {
	const count = 300
	s := New(testenv.Memory(t))
	testenv.Repeat(t, count, func(i int) {
		if err := s.WriteAttachment(Attachment{ContainerID: fmt.Sprint(i), IfName: "eth0"}); err != nil {
			t.Error(err)
		}
	})
	for range 200 {
		all, err := s.ListAttachments()
		if err != nil || len(all) != count {
			t.Fatalf("%d records of %d, %v", len(all), count, err)
		}
	}
}

// In a container the store is a mount, which cannot be removed from inside.
func TestRemoveFoldersLeavesAMountPoint(t *testing.T) {
	testenv.RequireRoot(t)
	s := New(t.TempDir())
	must(t, unix.Mount("none", s.Dir(), "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { must(t, unix.Unmount(s.Dir(), 0)) })
	must(t, s.WritePod(podA))
	must(t, s.DeletePod(podA.Namespace, podA.Name))
	must(t, s.RemoveFolders())
	left, err := os.ReadDir(s.Dir())
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
