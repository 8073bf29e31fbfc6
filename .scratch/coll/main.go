package main
import ("fmt";"os";"strconv"
"github.com/perfplan/perfplan/hardware"
"github.com/perfplan/perfplan/hardware/collective"
"github.com/perfplan/perfplan/internal/units")
func main(){
 h,err:=hardware.Load(os.Args[1]); if err!=nil{panic(err)}
 f,err:=collective.FabricOf(h.GPU,h.Node,h.Network,h.Software,h.Laws.Collectives...); if err!=nil{panic(err)}
 n,_:=strconv.Atoi(os.Args[2])
 for _,op:=range []collective.Op{collective.AllReduce,collective.AllGather,collective.ReduceScatter,collective.AllToAll,collective.SendRecv}{
  for _,mb:=range []float64{16,67,470,1024}{
   b:=units.Bytes(mb*1e6); t:=f.Time(op,b,f.Group(int64(n),1)); 
   fmt.Printf("%v %g MB %v bus %.0f GB/s\n",op,mb,t,float64(b)/float64(t)*op.BusFactor(int64(n))/1e9)
  }}
}
