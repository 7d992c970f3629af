# Cache::Memcached::Fast, told what to do in lines: perl story.pl PORT timeout=MS [OPTION]…
#
# Options: compress, namespace, nowait, noreply.
use strict;
use warnings;
use Cache::Memcached::Fast;
use MIME::Base64;

my ($port, $timeout, @options) = @ARGV;
my %option = map { $_ => 1 } @options;
$timeout =~ s/^timeout=//;
my $m;

sub dial {
    $m = Cache::Memcached::Fast->new({
        servers            => [{ address => "127.0.0.1:$port", noreply => $option{noreply} }],
        io_timeout         => $timeout / 1000,
        max_size           => 64 << 20,
        namespace          => $option{namespace} ? 'app:' : '',
        nowait             => $option{nowait},
        compress_threshold => $option{compress} ? 2000 : -1,
    });
}

my $silent = $option{nowait} || $option{noreply};

sub decoded { $_[0] eq '-' ? '' : decode_base64($_[0]) }
sub encoded { $_[0] eq ''  ? '-' : encode_base64($_[0], '') }

# answer names what a call returned: true, false, or undef where something went wrong.
sub answer {
    my ($true, $false, $got) = @_;
    return !defined $got ? 'error undef' : $got ? $true : $false;
}

# With nowait and noreply the library asks for no answer where nobody looks at what its method returns.
sub stored {
    my ($method, @args) = @_;
    return answer('stored', 'refused', scalar $m->$method(@args)) unless $silent;
    $m->$method(@args);
    return 'sent';
}

sub done {
    my ($method, @args) = @_;
    return answer('done', 'missing', scalar $m->$method(@args)) unless $silent;
    $m->$method(@args);
    return 'sent';
}

sub values_ {
    my ($key) = @_;
    for my $value (42, 1.5, "text \xe4", '', [1, { k => ['two', undef] }]) {
        my $stored = $m->set($key, $value);
        my $got = $m->get($key);
        return "error got " . ($got // 'undef') . ", want $value" unless ref $value ? "@{[dump_($got)]}" eq "@{[dump_($value)]}" : $got eq $value;
        my $deleted = $m->delete($key);
        return 'error not acked' unless $stored && $deleted;
    }
    return 'ok';
}

# dump_ writes a nested value in one form.
sub dump_ {
    my ($value) = @_;
    return '[' . join(',', map { dump_($_) } @$value) . ']' if ref $value eq 'ARRAY';
    return '{' . join(',', map { "$_:" . dump_($value->{$_}) } sort keys %$value) . '}' if ref $value eq 'HASH';
    return $value // 'undef';
}

my %act = (
    enqueue => sub { my ($key, $exptime, $flags, $body) = @_; stored('set', $key, decoded($body), $exptime || ()) },
    add     => sub { stored('add', $_[0], decoded($_[1])) },
    replace => sub { stored('replace', $_[0], decoded($_[1])) },
    reserve => sub { my $got = $m->gets($_[0]); $got ? "message $got->[0] - " . encoded($got->[1]) : 'empty' },
    several => sub {
        my $got = $m->gets_multi(@_);
        join ' ', 'messages', map { $got->{$_} ? ($got->{$_}[0], encoded($got->{$_}[1])) : ('-', '-') } @_;
    },
    ack      => sub { done('delete', $_[0]) },
    extend   => sub { done('touch', @_) },
    progress => sub { stored('cas', $_[0], $_[1], decoded($_[2])) },
    values   => \&values_,
    version  => sub { (values %{ $m->server_versions })[0] },
    stat     => sub { '-' }, # it has no call for them
    flush    => sub { $m->nowait_push; 'ok' },
    close    => sub { $m->disconnect_all; 'ok' },
);

$| = 1;
dial();
while (my $line = <STDIN>) {
    chomp $line;
    my ($command, @args) = split / /, $line;
    print eval { $act{$command}->(@args) } // "error $@", "\n";
}
