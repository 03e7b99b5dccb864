// Package source follows a Kubernetes API server and hands the objects that matter for one node to a
// Sink: its Pods, the endpoints objects, the namespaces, and of the policies what says whom they
// select. It takes the place of package policydir on a node of a cluster.
//
// # One kind, one watch
//
// Every kind has a client-go Reflector, which streams its first list where the server can, resumes
// its watch after an interruption, and lists again only when it has to. The reflector writes into a
// store that trims each object to what package world reads before it is kept, passes on what really
// changed, and finds out by itself what went while nobody watched. So the memory needed depends on
// the policies of the cluster and the pods of the node, never on the pods of other nodes.
//
// Kinds that the API server does not know are waited for and are no error; that it does not is believed
// after a while, since one that is starting finds them late. The list of pods in the
// endpoints objects is cut to this node, so these kinds start when the node's addresses are known; when
// the addresses change, they are listed again.
//
// # Nothing too early
//
// Sink.Synced is called when every kind that the API server knows has been delivered. Until then the
// caller must neither delete anything nor publish a pod: a kind whose list does not come may hold the
// policy that closes it. A pod's ADD fails meanwhile, with a reason, and the runtime tries again; what
// runs keeps what it has. A pod whose Namespace has not been seen is held back for the same reason,
// since watches of different kinds are not ordered.
//
// # Gone, or not seen
//
// Watches of different kinds are not ordered, and one may lag or hang while the others go on: nothing on
// it tells that from silence. So a policy that only its endpoints objects speak for is asked for by name,
// and Sink.Gone is called when the API server answers that it does not have it, and for nothing else.
//
// # Without the API server
//
// Nothing is delivered, so what was known last stays in force. Status says since when.
//
// The package decides nothing about policy and never touches the kernel.
package source
