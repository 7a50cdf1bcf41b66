// Prints the descriptions of topologies whose parts have names; tests/streams/named.py builds the same.

import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

public class NamedTopologies {
    static class NP implements org.apache.kafka.streams.processor.api.Processor<String,String,String,String> { public void process(org.apache.kafka.streams.processor.api.Record<String,String> r) {} }
    static Consumed<String,String> in(String n) { return Consumed.with(Serdes.String(), Serdes.String()).withName(n); }
    static void build(String title, java.util.function.Consumer<Topology> made) {
        Topology t = new Topology();
        System.out.println("== " + title);
        try { made.accept(t); System.out.println(t.describe()); }
        catch (org.apache.kafka.streams.errors.TopologyException e) { System.out.println(e.getMessage()); }
    }
    static void global(Topology t, String topic) {
        t.addGlobalStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("g"), Serdes.String(), Serdes.String()).withLoggingDisabled(),
            "g-source", new StringDeserializer(), new StringDeserializer(), topic, "g-processor",
            () -> (org.apache.kafka.streams.processor.api.Processor<String,String,Void,Void>) r -> {});
    }
    static java.util.regex.Pattern p(String text) { return java.util.regex.Pattern.compile(text); }
    static void patterns() {
        StreamsBuilder b = new StreamsBuilder();
        Consumed<String,String> latest = Consumed.with(Serdes.String(), Serdes.String()).withOffsetResetPolicy(AutoOffsetReset.latest());
        b.stream(p("in-.*"), in("matched")).merge(b.stream(p("in-.*"))).to("out");
        b.stream(p("other-[ab]"), latest).groupBy((k, v) -> v).count();
        show("patterns", b);
        build("patterns of one start", t -> t.addSource(AutoOffsetReset.latest(), "a", p("in-.*")).addSource("b", p("in-.*b")));
        build("topic, then pattern", t -> t.addSource("a", "in-x").addSource("b", p("in-.*")));
        build("pattern, then topic", t -> t.addSource("a", p("in-.*")).addSource("b", "x", "in-x"));
        build("pattern, then global topic", t -> global(t.addSource("a", p("in-.*")), "in-x"));
        build("no topic", t -> t.addSource("a", new String[0]));
        build("names twice", t -> t.addSource("a", p("a")).addSource("a", p("b")));
        StreamsBuilder all = new StreamsBuilder();
        all.stream(p(".*")).groupBy((k, v) -> v, Grouped.as("again")).count();
        System.out.println("== pattern and repartition topic");
        try { all.build(); } catch (org.apache.kafka.streams.errors.TopologyException e) { System.out.println(e.getMessage()); }
        StreamsBuilder twice = new StreamsBuilder();
        twice.stream(p("in-.*")); twice.stream(p("in-.*"), latest);
        System.out.println("== two policies of a pattern");
        try { twice.build(); } catch (org.apache.kafka.streams.errors.TopologyException e) { System.out.println(e.getMessage()); }
    }
    static void show(String title, StreamsBuilder b) { System.out.println("== " + title); System.out.println(b.build().describe()); }
    public static void main(String[] a) {
        StreamsBuilder b = new StreamsBuilder();
        KStream<String,String> s = b.stream("in0", in("source"));
        KStream<String,String> m = s.filter((k, v) -> true, Named.as("keep")).mapValues(v -> v, Named.as("change")).selectKey((k, v) -> v, Named.as("rekey")).peek((k, v) -> {}, Named.as("look")).flatMapValues(v -> List.of(v), Named.as("flatten"));
        m.merge(b.stream("in1", in("other")), Named.as("both")).to("out", Produced.<String,String>as("sink"));
        m.groupByKey(Grouped.as("grouping")).count(Named.as("counting"), Materialized.as("counts")).toStream(Named.as("streamed")).to("counts-out");
        m.groupBy((k, v) -> v, Grouped.<String,String>as("regroup")).aggregate(() -> "", (k, v, x) -> x, Named.as("aggregating"), Materialized.with(Serdes.String(), Serdes.String()));
        m.groupByKey().reduce((x, y) -> x, Named.as("reducing"), Materialized.with(Serdes.String(), Serdes.String()));
        m.repartition(Repartitioned.<String,String>as("again").withNumberOfPartitions(3)).toTable(Named.as("tabled"), Materialized.as("tabled-store"));
        m.toTable(Named.as("tabled2"));
        m.foreach((k, v) -> {}, Named.as("each"));
        m.print(Printed.<String,String>toSysOut().withName("printer"));
        m.print(Printed.<String,String>toSysOut());
        show("stateless", b);

        b = new StreamsBuilder();
        s = b.stream("in0", in("source"));
        KStream<String,String> o = b.stream("in1", in("other"));
        JoinWindows w = JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(5));
        s.join(o, (x, y) -> x, w, StreamJoined.<String,String,String>as("store-base").withName("joining"));
        s.leftJoin(o, (x, y) -> x, w, StreamJoined.<String,String,String>with(null, null, null).withName("left"));
        s.selectKey((k, v) -> v, Named.as("rekey")).outerJoin(o.selectKey((k, v) -> v, Named.as("rekey2")), (x, y) -> x, w, StreamJoined.<String,String,String>with(null, null, null).withName("outer"));
        s.outerJoin(o, (x, y) -> x, w, StreamJoined.<String,String,String>as("only-store"));
        show("stream joins", b);

        b = new StreamsBuilder();
        s = b.stream("in0", in("source"));
        KTable<String,String> t = b.table("in1", in("table"), Materialized.as("t-store"));
        KTable<String,String> u = b.table("in2", in("table2"));
        s.join(t, (x, y) -> x, Joined.<String,String,String>as("stj"));
        s.selectKey((k, v) -> v, Named.as("rekey")).leftJoin(u, (x, y) -> x, Joined.<String,String,String>as("stlj"));
        s.join(b.globalTable("in3", in("global"), Materialized.as("g-store")), (k, v) -> v, (x, y) -> x, Named.as("gj"));
        t.filter((k, v) -> true, Named.as("tf")).mapValues(v -> v, Named.as("tm"), Materialized.as("tm-store")).join(u, (x, y) -> x, Named.as("ttj"), Materialized.as("joined-store"));
        t.leftJoin(u, (x, y) -> x, Named.as("ttlj"));
        t.outerJoin(u, (x, y) -> x, Named.as("ttoj"), Materialized.with(Serdes.String(), Serdes.String()));
        t.join(u, v -> v, (x, y) -> x, TableJoined.as("fkj"), Materialized.with(Serdes.String(), Serdes.String()));
        t.leftJoin(u, v -> v, (x, y) -> x, TableJoined.as("fklj"), Materialized.as("fklj-store"));
        t.groupBy((k, v) -> KeyValue.pair(v, v), Grouped.as("tgroup")).aggregate(() -> "", (k, v, x) -> x, (k, v, x) -> x, Named.as("tagg"), Materialized.as("tagg-store"));
        t.groupBy((k, v) -> KeyValue.pair(v, v)).count(Named.as("tcount"));
        t.groupBy((k, v) -> KeyValue.pair(v, v)).reduce((x, y) -> x, (x, y) -> x, Named.as("treduce"), Materialized.as("treduce-store"));
        t.suppress(Suppressed.<String>untilTimeLimit(Duration.ofMillis(5), Suppressed.BufferConfig.unbounded()).withName("held")).toStream(Named.as("tts")).to("out", Produced.as("tsink"));
        t.transformValues(() -> new ValueTransformerWithKey<String,String,String>() { public void init(org.apache.kafka.streams.processor.ProcessorContext c) {} public String transform(String k, String v) { return v; } public void close() {} }, Named.as("trans"));
        t.transformValues(() -> new ValueTransformerWithKey<String,String,String>() { public void init(org.apache.kafka.streams.processor.ProcessorContext c) {} public String transform(String k, String v) { return v; } public void close() {} }, Materialized.with(Serdes.String(), Serdes.String()));
        t.toStream((k, v) -> v, Named.as("tsk"));
        t.mapValues(v -> v, Materialized.with(Serdes.String(), Serdes.String())).toStream().to("o2");
        show("tables", b);

        b = new StreamsBuilder();
        s = b.stream("in0", in("source"));
        o = b.stream("in1", in("other"));
        Map<String, KStream<String,String>> br = s.split(Named.as("sp-")).branch((k, v) -> true, Branched.as("one")).branch((k, v) -> true).branch((k, v) -> true, Branched.withConsumer(q -> q.to("c"), "three")).defaultBranch(Branched.as("rest"));
        
        Map<String, KStream<String,String>> br2 = o.split().branch((k, v) -> true).branch((k, v) -> true, Branched.withFunction(q -> q.mapValues(v -> v))).defaultBranch();
        
        br.get("sp-one").to("out1");
        KGroupedStream<String,String> g = s.groupByKey(), h = o.selectKey((k, v) -> v).groupByKey(Grouped.as("cg"));
        g.<String>cogroup((k, v, x) -> x).cogroup(h, (k, v, x) -> x).aggregate(() -> "", Named.as("cogroup"), Materialized.as("cg-store"));
        g.<String>cogroup((k, v, x) -> x).cogroup(o.groupByKey(), (k, v, x) -> x).windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMillis(5))).aggregate(() -> "", Named.as("wcog"), Materialized.<String,String,WindowStore<Bytes,byte[]>>as("wcg-store"));
        g.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMillis(5))).count(Named.as("wcount"));
        g.windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMillis(5))).reduce((x, y) -> x, Named.as("sreduce"), Materialized.<String,String,SessionStore<Bytes,byte[]>>as("s-store")).suppress((Suppressed) Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream();
        g.windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(5))).aggregate(() -> "", (k, v, x) -> x, Named.as("sl"), Materialized.with(Serdes.String(), Serdes.String()));
        b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("mine"), Serdes.String(), Serdes.String()));
        s.process(() -> new NP(), Named.as("proc"), "mine").to("o3");
        o.process(() -> new NP()).to("o4");
        show("split, cogroup, windows", b);
        patterns();
    }
}
